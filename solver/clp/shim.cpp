// The three things that the Go binding of CLP lacks: a limit in wall-clock time,
// a catch for the exceptions of C++, which would end a Go process, and CLP's
// version.
#include <ClpConfig.h>

#include <ClpSimplex.hpp>

extern "C" const char *weir_clp_version() { return CLP_VERSION; }

extern "C" int weir_dual(void *model, double wall_seconds) {
  try {
    auto *simplex = static_cast<ClpSimplex *>(model);
    simplex->setMaximumWallSeconds(wall_seconds);
    return simplex->dual();
  } catch (...) {
    return 4;  // CLP's own status for an error
  }
}
