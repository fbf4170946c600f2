// Buckets of S3, of servers that speak its protocol, and of Google's storage, whose XML interface does.
#pragma once

#include <string>

#include "titanium/remote/stores/aws_signature.h"

namespace titanium::remote {

// Where a bucket is, and who asks. Of `url` only scheme and bucket matter:
//   s3://  AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL for other servers than Amazon's; credentials and region as
//          aws_signature.h has them
//   gs://  STORAGE_EMULATOR_HOST for other servers than Google's; the HMAC key GS_ACCESS_KEY_ID with
//          GS_SECRET_ACCESS_KEY, else the token CLOUDSDK_AUTH_ACCESS_TOKEN (`gcloud auth print-access-token`)
// Without any of these, as the role that the cloud has given to this machine: role_credentials.h.
class Bucket {
 public:
  explicit Bucket(const std::string& url);

  // Signed now. `query` has sorted, encoded parameters, each with a '='.
  HttpRequest request(const std::string& method, const std::string& key, const std::string& query = "",
                      std::string body = "") const;
  // Throws what an answer without success means for the user: TransientError for what may pass, NotFound for what is
  // not there, else UsageError.
  [[noreturn]] void explain(const HttpResponse& response, const std::string& path) const;
  // The address of an object.
  std::string address(const std::string& key) const { return scheme_ + "://" + name_ + "/" + key; }

 private:
  struct Access {
    AwsCredentials credentials;
    std::string token;  // instead of them
  };
  Access access_now() const;

  std::string scheme_;
  std::string name_;
  Access given_;  // by the environment; credentials of roles change
  std::string region_;
  Url server_;
  std::string base_;
};

// What an address names inside its bucket.
std::string key_of(const std::string& url);

}  // namespace titanium::remote
