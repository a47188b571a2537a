// The table of contents of pronk._core.
#include "bindings.h"

namespace pronk::bindings {

nb::object python(const char* module, const char* name) {
  return nb::module_::import_(module).attr(name);
}

}  // namespace pronk::bindings

NB_MODULE(_core, m) {
  using namespace pronk::bindings;
  m.doc() = "The native part of pronk. Use the names of the package pronk; these here may change.";
  bind_errors(m);
  bind_build_info(m);
  bind_log(m);
  bind_exit(m);
  bind_engine(m);
  bind_statistics(m);
  bind_chat(m);
  bind_completion(m);
  bind_mailbox(m);
  bind_ready();
  bind_generation(m);
  bind_permit(m);
  bind_acquisition(m);
  bind_scheduler(m);
  bind_testing(m);
}
