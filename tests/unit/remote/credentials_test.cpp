// Where the credentials of containers may be asked for.

#include "titanium/remote/role_credentials.h"

namespace titanium::remote {
namespace {

TEST(Roles, TheTokenOfAContainerGoesToThisMachineOrOverHttps) {
  for (const char* url :
       {"http://127.0.0.1/x", "http://127.0.0.1:1234/x", "http://localhost:80", "http://169.254.170.2/v2",
        "http://169.254.170.23/v1", "http://[fd00:ec2::23]/v1", "http://[fd00:ec2::23]:80/v1", "https://example.org/x"})
    EXPECT_TRUE(may_get_container_token(parse_url(url))) << url;
  for (const char* url :
       {"http://example.org/x", "http://127.0.0.1:1@example.org/x", "http://127.0.0.1@example.org:80/x",
        "http://169.254.170.2:1@example.org/", "http://169.254.170.2.example.org/", "http://[fd00:ec2::24]/",
        "http://[fd00:ec2::23]:1@example.org/"})
    EXPECT_FALSE(may_get_container_token(parse_url(url))) << url;
}

}  // namespace
}  // namespace titanium::remote
