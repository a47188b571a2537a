// Stop strings and held-back text.
#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "check.h"
#include "text_reference.h"
#include "text_stream.h"
#include "utf8.h"

namespace {

using pronk::TextStream;

struct Outcome {
  std::string text;
  bool stopped = false;
  std::vector<std::string> pieces;  // what take() gave, in order
};

Outcome stream(const std::vector<std::string>& tokens, const std::vector<std::string>& stops) {
  TextStream stream(stops);
  Outcome outcome;
  const auto take = [&] {
    outcome.pieces.push_back(stream.take());
    outcome.text += outcome.pieces.back();
    // Whatever is shown is whole characters.
    CHECK_EQ(pronk::find_invalid_utf8(outcome.pieces.back()), std::string_view::npos);
  };
  for (const std::string& token : tokens) {
    const bool completed = stream.push(token);
    CHECK_EQ(completed, stream.stopped());
    take();
    if (completed) break;
  }
  stream.finish();
  take();
  outcome.stopped = stream.stopped();
  return outcome;
}

const std::vector<std::string> kTokens{"al", "pha be", "ta ga", "mma"};

TEST(stream_without_stops_hides_nothing) {
  const Outcome all = stream(kTokens, {});
  CHECK_EQ(all.text, "alpha beta gamma");
  CHECK(!all.stopped);
  CHECK_EQ(all.pieces, (std::vector<std::string>{"al", "pha be", "ta ga", "mma", ""}));
}

TEST(stream_stop_across_tokens) {
  const Outcome cut = stream(kTokens, {"beta gamma"});
  CHECK_EQ(cut.text, "alpha ");
  CHECK(cut.stopped);
  // "be" and on was held back from the moment it could be the stop.
  CHECK_EQ(cut.pieces, (std::vector<std::string>{"al", "pha ", "", "", ""}));
}

TEST(stream_releases_what_turned_out_to_be_no_stop) {
  const Outcome whole = stream(kTokens, {"beta gamut"});
  CHECK_EQ(whole.text, "alpha beta gamma");
  CHECK(!whole.stopped);
  CHECK_EQ(whole.pieces, (std::vector<std::string>{"al", "pha ", "", "beta gamma", ""}));
}

TEST(stream_flushes_at_the_end) {
  const Outcome whole = stream({"one ", "two"}, {"two three"});
  CHECK_EQ(whole.text, "one two");
  CHECK(!whole.stopped);
  CHECK_EQ(whole.pieces, (std::vector<std::string>{"one ", "", "two"}));
}

TEST(stream_stops_with_a_common_prefix) {
  // "ab" is complete first, so "abc" never is.
  CHECK_EQ(stream({"xa", "bc", "y"}, {"abc", "ab"}).text, "x");
  CHECK_EQ(stream({"xabc"}, {"ab", "abc"}).text, "x");
  // Ending together: the one that starts first.
  CHECK_EQ(stream({"xab", "c"}, {"bc", "abc"}).text, "x");
  CHECK_EQ(stream({"xab", "c"}, {"abc", "bc"}).text, "x");
  // The longer one fails, a suffix of what it matched is another stop.
  CHECK_EQ(stream({"aab", "ab"}, {"aabx", "bab"}).text, "aa");
  // Completed inside what a longer one has matched so far.
  CHECK_EQ(stream({"xabcd"}, {"abcde", "c"}).text, "xab");
  // The same stop twice.
  CHECK_EQ(stream({"xab"}, {"ab", "ab"}).text, "x");
}

TEST(stream_overlapping_restarts) {
  CHECK_EQ(stream({"aaa", "ab"}, {"aab"}).text, "aa");
  CHECK_EQ(stream({"ababab", "ac"}, {"ababac"}).text, "ab");
  const Outcome held = stream({"\n", "\n", "x"}, {"\n\n\n"});
  CHECK_EQ(held.pieces, (std::vector<std::string>{"", "", "\n\nx", ""}));
}

TEST(stream_stop_at_the_first_character) {
  const Outcome cut = stream({"a", "lpha"}, {"a"});
  CHECK_EQ(cut.text, "");
  CHECK(cut.stopped);
  CHECK_EQ(cut.pieces.size(), 2u);  // ended with the first token
  CHECK_EQ(stream({"alpha beta"}, {"alpha"}).text, "");
}

TEST(stream_stop_inside_a_token_drops_the_rest) {
  TextStream text(std::vector<std::string>{"STOP"});
  CHECK(text.push("before STOP after"));
  CHECK(text.stopped());
  CHECK(text.push("more"));  // ignored
  text.finish();
  CHECK_EQ(text.take(), "before ");
  CHECK_EQ(text.take(), "");
}

TEST(stream_stop_over_multibyte_characters) {
  // The euro sign's bytes come in three tokens, the stop begins with it.
  const Outcome cut = stream({"5\xE2", "\x82", "\xAC", " each"}, {"\xE2\x82\xAC e"});
  CHECK_EQ(cut.text, "5");
  CHECK(cut.stopped);
  // Shares two of three bytes with the stop, but is another character.
  CHECK_EQ(stream({"5\xE2\x82", "\xAD", " each"}, {"\xE2\x82\xAC"}).text, "5\xE2\x82\xAD each");
  // One that is held back is held back whole.
  const Outcome held = stream({"\xE2\x82", "\xAC", "x"}, {"\xE2\x82\xAC!"});
  CHECK_EQ(held.pieces, (std::vector<std::string>{"", "",
                                                  "\xE2\x82\xAC"
                                                  "x",
                                                  ""}));
}

TEST(stream_invalid_bytes_are_replaced_and_can_be_a_stop) {
  CHECK_EQ(stream({"a\xFF", "b"}, {}).text,
           "a\xEF\xBF\xBD"
           "b");
  CHECK_EQ(stream({"a\xE2\x82"}, {}).text, "a\xEF\xBF\xBD");
  CHECK_EQ(stream({"ok \xFF", "no"}, {"\xEF\xBF\xBD"}).text, "ok ");
  const Outcome at_end = stream({"ok \xE2\x82"}, {"\xEF\xBF\xBD"});
  CHECK_EQ(at_end.text, "ok ");
  CHECK(at_end.stopped);
}

TEST(stream_empty_tokens) {
  const Outcome cut = stream({"", "a", "", "b", ""}, {"ab"});
  CHECK_EQ(cut.text, "");
  CHECK(cut.stopped);
  CHECK_EQ(stream({}, {"x"}).text, "");
}

TEST(stream_text_may_wait_to_be_taken) {
  TextStream text(std::vector<std::string>{"END"});
  for (const char* token : {"one ", "two ", "E", "N"}) CHECK(!text.push(token));
  CHECK_EQ(text.take(), "one two ");
  CHECK(!text.push("e"));
  CHECK(!text.push(" E"));
  CHECK_EQ(text.take(), "ENe ");
  CHECK(text.push("ND"));
  CHECK_EQ(text.take(), "");
}

TEST(stream_many_long_stops) {
  std::vector<std::string> stops;
  for (int i = 0; i < 64; ++i) {
    std::string stop(4095, 'a');
    stop.push_back(static_cast<char>('b' + i % 20));
    stops.push_back(i < 20 ? stop : stop.substr(static_cast<std::size_t>(i)));
  }
  const std::string many(20000, 'a');
  const Outcome cut = stream({many, "c"}, stops);
  CHECK(cut.stopped);
  CHECK_EQ(cut.text, std::string(20000 - 4095, 'a'));
}

// All ways to cut short strings, and many ways to cut longer ones.
TEST(stream_does_not_depend_on_the_chunks) {
  std::mt19937_64 random(check::seed());
  const std::vector<std::string> parts{
      "a", "b", "c", "\xC3\xA9", "\xE2\x82\xAC", "\xEF\xBF\xBD", "\xF0\x9F\xA6\x99"};
  int stopped = 0;
  for (int round = 0; round < 600; ++round) {
    std::vector<std::string> stops(random() % 4);
    for (std::string& stop : stops) {
      for (std::size_t n = 1 + random() % 4; n > 0; --n)
        stop += parts[random() % (round % 2 ? 3 : parts.size())];
    }
    std::string bytes;
    while (bytes.size() < 9) {
      if (random() % 5 == 0) {
        bytes += reference::random_bytes(random, 2);
      } else {
        bytes += parts[random() % (round % 2 ? 3 : parts.size())];
      }
    }
    bytes.resize(9);
    const reference::Text expected = reference::cut(bytes, stops);
    stopped += expected.stopped;
    for (unsigned cuts = 0; cuts < 1u << (bytes.size() - 1); ++cuts) {
      std::vector<std::string> tokens{""};
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        tokens.back().push_back(bytes[i]);
        if (cuts >> i & 1) tokens.emplace_back();
      }
      const Outcome got = stream(tokens, stops);
      if (!CHECK_EQ(got.text, expected.text) || !CHECK_EQ(got.stopped, expected.stopped)) {
        CHECK_EQ(tokens, stops);  // to see them
        return;
      }
    }
  }
  CHECK(stopped > 60);
  CHECK(stopped < 540);
}

// Nothing is held back that cannot become a stop: what is shown is always the longest safe prefix.
TEST(stream_holds_back_no_more_than_it_must) {
  std::mt19937_64 random(check::seed());
  for (int round = 0; round < 400; ++round) {
    std::vector<std::string> stops(1 + random() % 3);
    for (std::string& stop : stops) {
      for (std::size_t n = 1 + random() % 5; n > 0; --n)
        stop.push_back(static_cast<char>('a' + random() % 2));
    }
    TextStream text(stops);
    std::string all;
    std::string shown;
    for (int i = 0; i < 40; ++i) {
      all.push_back(static_cast<char>('a' + random() % 2));
      const bool stop = text.push(all.substr(all.size() - 1));
      shown += text.take();
      const reference::Text expected = reference::cut(all, stops);
      CHECK_EQ(stop, expected.stopped);
      if (stop) {
        CHECK_EQ(shown, expected.text);
        break;
      }
      std::size_t held = 0;
      for (const std::string& s : stops) {
        for (std::size_t n = 1; n < s.size(); ++n) {
          if (all.ends_with(s.substr(0, n))) held = std::max(held, n);
        }
      }
      CHECK_EQ(shown.size(), all.size() - held);
    }
  }
}

}  // namespace
