// Rights that any user has.
#pragma once

#include <unistd.h>

#include <cstdlib>

namespace titanium::test {

// While it lives, the process may no more than any user: root could read and write everything.
class WithoutPrivileges {
 public:
  WithoutPrivileges() : user_(::geteuid()) { become(user_ == 0 ? kNobody : user_); }
  ~WithoutPrivileges() { become(user_); }
  WithoutPrivileges(const WithoutPrivileges&) = delete;
  WithoutPrivileges& operator=(const WithoutPrivileges&) = delete;

 private:
  static constexpr uid_t kNobody = 65534;
  static void become(uid_t user) {
    if (::seteuid(user) != 0) std::abort();
  }
  uid_t user_;
};

}  // namespace titanium::test
