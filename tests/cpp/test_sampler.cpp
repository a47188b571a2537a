// The sampling chain against a slow reference, and what each step of it promises.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <span>
#include <vector>

#include "check.h"
#include "pronk/error.h"
#include "rng.h"
#include "sampler.h"

namespace {

using pronk::Sampler;
using pronk::SamplingParams;
using pronk::Token;
using pronk::TokenLogprob;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();

using Row = std::vector<float>;

std::int32_t size_of(const Row& row) { return static_cast<std::int32_t>(row.size()); }

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

// Every step of the chain off: what a test adds is all there is.
SamplingParams plain(std::uint64_t seed = 1) {
  SamplingParams params;
  params.temperature = 1;
  params.top_k = 0;
  params.top_p = 1;
  params.min_p = 0;
  params.seed = seed;
  return params;
}

Token sample_once(const SamplingParams& params, const Row& row,
                  const std::vector<Token>& eog = {}) {
  return Sampler(params, size_of(row), eog).sample(row, 0, nullptr);
}

// All tokens that come up in `n` draws, and how often.
std::map<Token, int> draws(const SamplingParams& params, const Row& row, int n) {
  Sampler sampler(params, size_of(row), {});
  std::map<Token, int> counts;
  for (int i = 0; i < n; ++i) ++counts[sampler.sample(row, 0, nullptr)];
  return counts;
}

std::set<Token> support(const SamplingParams& params, const Row& row, int n = 3000) {
  std::set<Token> tokens;
  for (const auto& [token, count] : draws(params, row, n)) tokens.insert(token);
  return tokens;
}

Row random_row(std::mt19937_64& random, std::size_t n, float spread) {
  std::normal_distribution<float> normal(0, spread);
  Row row(n);
  for (float& value : row) value = normal(random);
  return row;
}

// The chain as params.h has it, with nothing but sorting, in double precision.
struct Reference {
  std::vector<std::pair<Token, double>> kept;  // in order of id, with weights
  double total = 0;
  bool doubtful = false;  // rounding decides about a cut

  Reference(const SamplingParams& p, const Row& row, const std::vector<Token>& history) {
    std::vector<std::pair<double, Token>> all;
    std::map<Token, int> counts;
    const std::size_t window =
        p.penalty_last_n < 0
            ? history.size()
            : std::min<std::size_t>(history.size(), static_cast<std::size_t>(p.penalty_last_n));
    for (std::size_t i = history.size() - window; i < history.size(); ++i) ++counts[history[i]];
    for (Token t = 0; t < size_of(row); ++t) {
      float logit = row[static_cast<std::size_t>(t)];
      for (const auto& [token, bias] : p.logit_bias) {
        if (token == t) logit += bias;
      }
      if (counts.contains(t)) {
        logit = logit > 0 ? logit / p.repeat_penalty : logit * p.repeat_penalty;
        logit -= static_cast<float>(counts[t]) * p.frequency_penalty + p.presence_penalty;
      }
      if (logit > -kInfinity) all.emplace_back(-double{logit}, t);  // false for NaN
    }
    std::sort(all.begin(), all.end());
    if (p.top_k > 0 && static_cast<std::size_t>(p.top_k) < all.size())
      all.resize(static_cast<std::size_t>(p.top_k));
    const double max = -all.front().first;
    const auto weight = [&](const std::pair<double, Token>& entry, double t) {
      return std::exp((-entry.first - max) / t);
    };
    if (p.top_p < 1) {
      double mass = 0;
      for (const auto& entry : all) mass += weight(entry, 1);
      double sum = 0;
      std::size_t n = 0;
      while (n < all.size() && sum < mass * double{p.top_p}) {
        sum += weight(all[n++], 1);
        doubtful |= std::abs(sum / mass - double{p.top_p}) < 1e-5;
      }
      all.resize(n);
    }
    if (p.min_p > 0) {
      std::erase_if(all, [&](const auto& entry) {
        doubtful |= std::abs(weight(entry, 1) - double{p.min_p}) < 1e-5 * double{p.min_p};
        return weight(entry, 1) < double{p.min_p};
      });
    }
    std::sort(all.begin(), all.end(),
              [](const auto& a, const auto& b) { return a.second < b.second; });
    for (const auto& entry : all) {
      kept.emplace_back(entry.second, weight(entry, double{p.temperature}));
      total += kept.back().second;
    }
  }

  // The token that the draw `u` gives; tokens next to it where rounding decides.
  std::set<Token> drawn(double u) const {
    std::set<Token> tokens;
    double sum = 0;
    for (const auto& [token, w] : kept) {
      const double low = sum / total;
      sum += w;
      if (u > low - 1e-5 && u < sum / total + 1e-5) tokens.insert(token);
    }
    return tokens;
  }
};

TEST(sampler_greedy_takes_the_largest) {
  std::mt19937_64 random(check::seed());
  for (const std::size_t n : {1, 2, 15, 16, 17, 127, 128, 129, 255, 1000, 4099}) {
    for (int round = 0; round < 20; ++round) {
      const Row row = random_row(random, n, 3);
      const auto best = std::max_element(row.begin(), row.end()) - row.begin();
      CHECK_EQ(sample_once(greedy(), row), best);
    }
  }
}

TEST(sampler_greedy_every_position) {
  for (std::size_t at = 0; at < 300; ++at) {
    Row row(300, -1.0f);
    row[at] = -0.5f;
    CHECK_EQ(sample_once(greedy(), row), at);
  }
}

TEST(sampler_greedy_ties_go_to_the_lowest_id) {
  Row row(1000, 0.25f);
  CHECK_EQ(sample_once(greedy(), row), 0);
  row[900] = row[131] = row[140] = 7;
  CHECK_EQ(sample_once(greedy(), row), 131);
  row = {-1, -0.0f, 0.0f};  // equal
  CHECK_EQ(sample_once(greedy(), row), 1);
}

TEST(sampler_nan_counts_as_impossible) {
  Row row(300, kNan);
  row[17] = -5;
  row[200] = -4;
  CHECK_EQ(sample_once(greedy(), row), 200);
  CHECK_EQ(support(plain(), row), (std::set<Token>{17, 200}));
  SamplingParams all = plain();
  all.top_k = 250;
  all.top_p = 0.9999f;
  all.min_p = 0.0001f;
  CHECK_EQ(support(all, row), (std::set<Token>{17, 200}));
  all.logit_bias = {{17, 1.0f}, {18, 100.0f}};  // a bias brings back no NaN
  CHECK_EQ(support(all, row), (std::set<Token>{17, 200}));
}

TEST(sampler_refuses_a_row_without_a_token) {
  for (const SamplingParams& params : {greedy(), plain(), SamplingParams{}}) {
    for (const Row& row : {Row(200, -kInfinity), Row(200, kNan)}) {
      CHECK_THROWS(pronk::BackendError, sample_once(params, row));
    }
    Row infinite(200, 1.0f);
    infinite[3] = kInfinity;
    CHECK_THROWS(pronk::BackendError, sample_once(params, infinite));
    SamplingParams banned = params;
    banned.logit_bias = {{0, -kInfinity}, {1, -kInfinity}};
    CHECK_THROWS(pronk::BackendError, sample_once(banned, Row{1, 2}));
    CHECK_EQ(sample_once(banned, Row{1, 2, -50}), 2);
  }
}

TEST(sampler_refuses_a_row_of_another_size) {
  Sampler sampler(greedy(), 100, {});
  CHECK_THROWS(pronk::BackendError, sampler.sample(Row(), 0, nullptr));
  CHECK_THROWS(pronk::BackendError, sampler.sample(Row(99), 0, nullptr));
  CHECK_THROWS(pronk::BackendError, sampler.sample(Row(101), 0, nullptr));
}

// The whole chain with random parameters: the same token as the reference for the same random
// number.
TEST(sampler_equals_the_reference) {
  std::mt19937_64 random(check::seed());
  const auto pick = [&](std::vector<float> from) { return from[random() % from.size()]; };
  int certain = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::size_t n = 1 + random() % (round % 10 == 0 ? 6000 : 400);
    SamplingParams p;
    p.temperature = pick({0.1f, 0.8f, 1, 1.7f, 100});
    p.top_k = static_cast<std::int32_t>(pick({0, 0, 1, 2, 40, 100, 399, 5000}));
    p.top_p = pick({1, 1, 0.95f, 0.5f, 0.01f, 0.999f});
    p.min_p = pick({0, 0, 0.05f, 0.5f, 1, 1e-6f});
    p.repeat_penalty = pick({1, 1, 1.3f, 0.7f});
    p.frequency_penalty = pick({0, 0, 0.5f, -0.3f});
    p.presence_penalty = pick({0, 0, 0.6f, -1});
    p.penalty_last_n = static_cast<std::int32_t>(pick({0, -1, 1, 5, 64}));
    p.seed = random();
    const auto any = [&] { return static_cast<Token>(random() % n); };
    for (std::size_t i = random() % 4; i > 0; --i)
      p.logit_bias.emplace_back(any(), pick({3, -3, -kInfinity}));
    Row row = random_row(random, n, pick({0.3f, 2, 6}));
    if (round % 3 == 0) {  // ties
      for (float& value : row) value = std::round(value);
    }
    if (round % 7 == 0) row[random() % n] = -kInfinity;
    Sampler sampler(p, size_of(row), {});
    std::vector<Token> history(random() % 600);
    for (Token& token : history) token = any();
    sampler.accept(history);
    pronk::Rng rng(*p.seed);
    for (int i = 0; i < 3; ++i) {
      Token got = 0;
      try {
        got = sampler.sample(row, 0, nullptr);
      } catch (const pronk::BackendError&) {
        CHECK(n <= 4);  // everything was banned
        break;
      }
      const Reference reference(p, row, history);
      const std::set<Token> expected = reference.drawn(rng.uniform());
      if (!reference.doubtful) {
        ++certain;
        if (!CHECK(expected.contains(got))) {
          CHECK_EQ(got, round);
          return;
        }
      }
      sampler.accept(got);
      history.push_back(got);
    }
  }
  CHECK(certain > 6000);
}

// What is drawn follows the probabilities: 20,000 draws, each count within 5 standard deviations.
TEST(sampler_draws_by_probability) {
  const Row row{1, 2, 0.5f, -1, 2, 1.5f, -kInfinity, 0};
  for (const float temperature : {0.5f, 1.0f, 2.0f}) {
    for (const bool limited : {false, true}) {
      SamplingParams p = plain(7);
      p.temperature = temperature;
      p.top_k = limited ? 7 : 0;
      double total = 0;
      for (const float l : row) total += std::exp(double{l} / double{temperature});
      std::map<Token, int> counts = draws(p, row, 20000);
      CHECK(!counts.contains(6));
      for (Token t = 0; t < 8; ++t) {
        const double share =
            std::exp(double{row[static_cast<std::size_t>(t)]} / double{temperature}) / total;
        const double deviation = std::sqrt(20000 * share * (1 - share));
        CHECK(std::abs(counts[t] - 20000 * share) <= 5 * deviation);
      }
    }
  }
}

TEST(sampler_top_k) {
  Row row(2000, 0.0f);
  row[5] = 1, row[1500] = 2, row[700] = 3;
  SamplingParams p = plain();
  p.top_k = 1;
  CHECK_EQ(support(p, row), (std::set<Token>{700}));
  p.top_k = 3;
  CHECK_EQ(support(p, row), (std::set<Token>{5, 700, 1500}));
  p.top_k = 5;  // ties: the lower ids stay
  CHECK_EQ(support(p, row), (std::set<Token>{0, 1, 5, 700, 1500}));
  p.top_k = std::numeric_limits<std::int32_t>::max();
  CHECK(support(p, row).size() > 1000);
}

TEST(sampler_top_p) {
  // Probabilities 0.5, 0.25, 0.125, 0.125.
  const Row row{std::log(0.125f), std::log(0.5f), std::log(0.125f), std::log(0.25f)};
  SamplingParams p = plain();
  p.top_p = 0.49f;
  CHECK_EQ(support(p, row), (std::set<Token>{1}));
  p.top_p = 0.51f;
  CHECK_EQ(support(p, row), (std::set<Token>{1, 3}));
  p.top_p = 0.8f;  // the tie goes to the lower id
  CHECK_EQ(support(p, row), (std::set<Token>{0, 1, 3}));
  p.top_p = 0.9f;
  CHECK_EQ(support(p, row), (std::set<Token>{0, 1, 2, 3}));
  p.top_p = 1e-30f;
  CHECK_EQ(support(p, row), (std::set<Token>{1}));
  // Of what top-k left: 2/3 and 1/3.
  p.top_k = 2;
  p.top_p = 0.6f;
  CHECK_EQ(support(p, row), (std::set<Token>{1}));
  p.top_p = 0.7f;
  CHECK_EQ(support(p, row), (std::set<Token>{1, 3}));
  // The cut is made at temperature 1.
  p = plain();
  p.top_p = 0.51f;
  p.temperature = 50;
  CHECK_EQ(support(p, row), (std::set<Token>{1, 3}));
}

TEST(sampler_min_p) {
  const Row row{std::log(0.2f), std::log(0.6f), std::log(0.05f), std::log(0.15f)};
  SamplingParams p = plain();
  p.temperature = 10;  // the cut is made at temperature 1
  p.min_p = 0.3f;
  CHECK_EQ(support(p, row), (std::set<Token>{0, 1}));
  p.min_p = 0.2f;
  CHECK_EQ(support(p, row), (std::set<Token>{0, 1, 3}));
  p.min_p = 1;
  CHECK_EQ(support(p, row), (std::set<Token>{1}));
}

TEST(sampler_flat_rows_of_a_large_vocabulary) {
  std::mt19937_64 random(check::seed());
  const Row row = random_row(random, 50000, 0.01f);
  SamplingParams p = plain(random());
  for (const float top_p : {1.0f, 0.9f}) {
    p.top_p = top_p;
    const auto tokens = support(p, row, 500);
    CHECK(tokens.size() > 450);
    CHECK(*tokens.rbegin() > 25000);
  }
}

TEST(sampler_penalties) {
  SamplingParams p = greedy();
  p.repeat_penalty = 2;
  const auto after = [&](const std::vector<Token>& history, const Row& row) {
    Sampler sampler(p, size_of(row), {});
    for (const Token token : history) sampler.accept(token);
    return sampler.sample(row, 0, nullptr);
  };
  CHECK_EQ(after({}, {3, 2, 1}), 0);
  CHECK_EQ(after({0}, {3, 2, 1}), 1);        // 3 / 2 < 2
  CHECK_EQ(after({0}, {-1, -1.5f, -9}), 1);  // -1 x 2 < -1.5
  CHECK_EQ(after({0, 0, 0}, {3, 1.4f}), 0);  // counts once, however often
  p.repeat_penalty = 1;
  p.frequency_penalty = 1;
  CHECK_EQ(after({0}, {3, 1.9f}), 0);
  CHECK_EQ(after({0, 0}, {3, 1.9f}), 1);  // by count
  p.frequency_penalty = 0;
  p.presence_penalty = 1;
  CHECK_EQ(after({0, 0, 0}, {3, 1.9f}), 0);  // once
  CHECK_EQ(after({0}, {3, 2.1f}), 1);
  p.presence_penalty = -1;  // a reward
  CHECK_EQ(after({1}, {3, 2.1f}), 1);
}

TEST(sampler_penalties_look_back_so_far) {
  SamplingParams p = greedy();
  p.presence_penalty = 10;
  p.penalty_last_n = 2;
  const Row row{3, 2, 1, 0};
  Sampler sampler(p, 4, {});
  std::vector<Token> chosen;
  for (int i = 0; i < 6; ++i) {
    chosen.push_back(sampler.sample(row, 0, nullptr));
    sampler.accept(chosen.back());
  }
  CHECK_EQ(chosen, (std::vector<Token>{0, 1, 2, 0, 1, 2}));
  p.penalty_last_n = 0;
  Sampler none(p, 4, {});
  none.accept(0);
  CHECK_EQ(none.sample(row, 0, nullptr), 0);
  p.penalty_last_n = -1;
  Sampler all(p, 4, {});
  for (const Token token : {0, 1, 2, 2, 2, 2}) all.accept(token);
  CHECK_EQ(all.sample(row, 0, nullptr), 3);
}

// A prompt at once or token by token, and a window that has gone round many times.
TEST(sampler_history_in_any_portions) {
  std::mt19937_64 random(check::seed());
  for (int round = 0; round < 60; ++round) {
    const std::int32_t last_n = std::vector<std::int32_t>{-1, 1, 7, 64, 300, 1000}[random() % 6];
    pronk::TokenWindow portions(last_n);
    pronk::TokenWindow single(last_n);
    std::vector<Token> all;
    for (int i = 0; i < 8; ++i) {
      std::vector<Token> tokens(random() % 700);
      for (Token& token : tokens) token = static_cast<Token>(random() % 50);
      portions.add(tokens);
      for (const Token token : tokens) single.add(token);
      all.insert(all.end(), tokens.begin(), tokens.end());
      std::map<Token, std::int32_t> expected;
      const std::size_t n =
          last_n < 0 ? all.size() : std::min(all.size(), static_cast<std::size_t>(last_n));
      for (std::size_t k = all.size() - n; k < all.size(); ++k) ++expected[all[k]];
      for (const pronk::TokenWindow* window : {&portions, &single}) {
        std::map<Token, std::int32_t> counted;
        for (const auto& [token, count] : window->counts()) counted[token] = count;
        CHECK_EQ(counted.size(), window->counts().size());
        CHECK(counted == expected);
      }
    }
  }
}

TEST(sampler_history_ignores_foreign_ids) {
  SamplingParams p = greedy();
  p.presence_penalty = 10;
  Sampler sampler(p, 2, {});
  sampler.accept(std::vector<Token>{-1, 2, 1 << 30, 0});
  sampler.accept(-5);
  CHECK_EQ(sampler.sample(Row{2, 1}, 0, nullptr), 1);
}

TEST(sampler_logit_bias) {
  SamplingParams p = greedy();
  p.logit_bias = {{2, 5.0f}, {0, -1.0f}, {2, -3.5f}};  // the sum for a token named twice
  CHECK_EQ(sample_once(p, Row{3, 2.5f, 1.2f}), 2);
  CHECK_EQ(sample_once(p, Row{3, 2.5f, 0.9f}), 1);
  p.logit_bias = {{0, kLargest}, {0, kLargest}, {1, -kInfinity}, {1, kLargest}};
  CHECK_EQ(sample_once(p, Row{kLargest, 3, 2}), 0);  // large is not infinite
  p = plain();
  p.logit_bias = {{0, -kInfinity}};
  CHECK_EQ(support(p, Row{9, 1, 1}), (std::set<Token>{1, 2}));
}

TEST(sampler_ignore_eos) {
  const Row row{9, 1, 8, 0};
  const std::vector<Token> eog{0, 2, -1, 77};  // vocabularies name ids that they do not have
  SamplingParams p = greedy();
  CHECK_EQ(sample_once(p, row, eog), 0);
  p.ignore_eos = true;
  CHECK_EQ(sample_once(p, row, eog), 1);
  p.logit_bias = {{0, 100.0f}};  // no bias brings it back
  CHECK_EQ(sample_once(p, row, eog), 1);
}

TEST(sampler_seeds) {
  std::mt19937_64 random(3);
  const Row row = random_row(random, 500, 1);
  const auto sequence = [&](const SamplingParams& p) {
    Sampler sampler(p, size_of(row), {});
    std::vector<Token> tokens;
    for (int i = 0; i < 20; ++i) tokens.push_back(sampler.sample(row, 0, nullptr));
    return tokens;
  };
  CHECK_EQ(sequence(plain(5)), sequence(plain(5)));
  CHECK_EQ(sequence(plain(0)), sequence(plain(0)));
  CHECK(sequence(plain(5)) != sequence(plain(6)));
  CHECK(sequence(plain(0)) != sequence(plain(1)));
  CHECK_EQ(Sampler(plain(0), 500, {}).seed(), 0u);
  SamplingParams fresh = plain();
  fresh.seed = std::nullopt;
  CHECK(sequence(fresh) != sequence(fresh));
  // A drawn seed can be read and repeats what it gave.
  Sampler sampler(fresh, size_of(row), {});
  std::vector<Token> tokens;
  for (int i = 0; i < 20; ++i) tokens.push_back(sampler.sample(row, 0, nullptr));
  CHECK_EQ(sequence(plain(sampler.seed())), tokens);
}

// The published outputs of both generators: a seed means the same everywhere.
TEST(rng_known_answers) {
  pronk::SplitMix64 mix(1234567);
  for (const std::uint64_t expected :
       {6457827717110365317u, 3203168211198807973u, 9817491932198370423u, 4593380528125082431u,
        16408922859458223821u}) {
    CHECK_EQ(mix.next(), expected);
  }
  pronk::Rng rng = pronk::Rng::from_state({1, 2, 3, 4});
  for (const std::uint64_t expected : std::initializer_list<std::uint64_t>{
           41943041u, 58720359u, 3588806011781223u, 3591011842654386u, 9228616714210784205u,
           9973669472204895162u, 14011001112246962877u, 12406186145184390807u,
           15849039046786891736u, 10450023813501588000u}) {
    CHECK_EQ(rng.next(), expected);
  }
  pronk::Rng unit(9);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double u = unit.uniform();
    CHECK(u >= 0 && u < 1);
    sum += u;
  }
  CHECK(std::abs(sum / 10000 - 0.5) < 0.02);
}

TEST(sampler_extreme_numbers) {
  const Row row{kLargest, -kLargest, 1, kLargest};
  for (const float temperature : {1e-45f, 1e-30f, 1e-3f, 1.0f, 100.0f}) {
    SamplingParams p = plain();
    p.temperature = temperature;
    CHECK_EQ(support(p, row, 100), (std::set<Token>{0, 3}));
    p.top_p = 0.99f;
    p.min_p = 1e-45f;
    CHECK_EQ(support(p, row, 100), (std::set<Token>{0, 3}));
    p.top_k = 3;
    CHECK_EQ(support(p, row, 100), (std::set<Token>{0, 3}));
    CHECK_EQ(support(p, Row{1, 2, 1.999f}, 300).contains(1), true);
  }
  SamplingParams p = greedy();
  p.repeat_penalty = 1e-38f;
  p.frequency_penalty = -100;
  Sampler sampler(p, 4, {});
  for (int i = 0; i < 64; ++i) sampler.accept(2);
  CHECK_EQ(sampler.sample(Row{5, 1, 4, 3}, 0, nullptr), 2);  // overflow is no infinity
}

// The coldest temperatures are greedy.
TEST(sampler_cold_is_greedy) {
  std::mt19937_64 random(check::seed());
  for (int round = 0; round < 50; ++round) {
    const Row row = random_row(random, 300, 2);
    SamplingParams p;
    p.temperature = 1e-40f;
    CHECK_EQ(sample_once(p, row), sample_once(greedy(), row));
  }
}

TEST(sampler_logprobs) {
  std::mt19937_64 random(check::seed());
  for (int round = 0; round < 100; ++round) {
    Row row = random_row(random, 1 + random() % 700, 4);
    if (round % 4 == 0) {
      for (float& value : row) value = std::round(value);
    }
    SamplingParams p;
    p.temperature = round % 2 ? 0.0f : 1.5f;
    p.logit_bias = {{0, 2.0f}};
    p.repeat_penalty = round % 3 ? 1.0f : 1.5f;  // no part of the logprobs
    Sampler sampler(p, size_of(row), {});
    p.seed = sampler.seed();
    Sampler silent(p, size_of(row), {});
    for (Token t = 0; t < std::min(40, size_of(row)); ++t) sampler.accept(t), silent.accept(t);
    Row biased = row;
    biased[0] += 2;
    double total = 0;
    for (const float l : biased) total += std::exp(double{l});
    std::vector<std::pair<float, Token>> order;
    for (Token t = 0; t < size_of(row); ++t)
      order.emplace_back(-biased[static_cast<std::size_t>(t)], t);
    std::sort(order.begin(), order.end());

    const std::int32_t n_top = static_cast<std::int32_t>(random() % 33);
    TokenLogprob logprob;
    logprob.top.assign(50, {1, 1.0f});  // what was there goes
    const Token token = sampler.sample(row, n_top, &logprob);
    CHECK_EQ(token, silent.sample(row, 0, nullptr));  // asking changes nothing
    CHECK_EQ(logprob.token, token);
    const auto near = [&](float got, Token t) {
      return std::abs(double{got} -
                      (double{biased[static_cast<std::size_t>(t)]} - std::log(total))) < 1e-5;
    };
    CHECK(near(logprob.logprob, token));
    CHECK_EQ(logprob.top.size(),
             std::min<std::size_t>(static_cast<std::size_t>(n_top), row.size()));
    for (std::size_t i = 0; i < logprob.top.size(); ++i) {
      CHECK_EQ(logprob.top[i].first, order[i].second);
      CHECK(near(logprob.top[i].second, order[i].second));
    }
  }
}

TEST(sampler_logprobs_are_finite) {
  SamplingParams p = greedy();
  p.logit_bias = {{2, -kInfinity}};
  TokenLogprob logprob;
  const Row row{kLargest, -kLargest, 5, -kInfinity, kNan};
  CHECK_EQ(Sampler(p, 5, {}).sample(row, 5, &logprob), 0);
  CHECK_EQ(logprob.logprob, 0.0f);
  REQUIRE(logprob.top.size() == 2);  // banned and impossible tokens are no alternatives
  CHECK_EQ(logprob.top[1].first, 1);
  CHECK_EQ(logprob.top[1].second, -kLargest);
  // The chosen token alone.
  CHECK_EQ(Sampler(p, 5, {}).sample(row, 0, &logprob), 0);
  CHECK(logprob.top.empty());
}

TEST(exp_is_accurate) {
  double worst = 0;
  for (float x = 0; x > -87; x -= 0.00037f) {
    const double exact = std::exp(double{x});
    worst = std::max(worst, std::abs(double{pronk::exp_of_negative(x)} - exact) / exact);
  }
  CHECK(worst < 3e-7);
  CHECK_EQ(pronk::exp_of_negative(0), 1.0f);
  for (const float x : {-87.0f, -88.0f, -1e30f, -kLargest, -kInfinity, kNan})
    CHECK_EQ(pronk::exp_of_negative(x), 0.0f);
}

}  // namespace
