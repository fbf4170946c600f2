// Amazon's signature, version 4, for requests to S3 and to servers that speak its protocol.
#pragma once

#include <string>

#include "titanium/remote/transport/http.h"

namespace titanium::remote {

struct AwsCredentials {
  std::string key;  // empty: requests are not signed, which is enough for public buckets
  std::string secret;
  std::string session;  // may be empty
};

// The credentials as Amazon's tools find them: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, else the
// profile AWS_PROFILE ("default") of AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials) or AWS_CONFIG_FILE
// (~/.aws/config). Throws UsageError when a profile that is asked for by name is not there or has no key.
AwsCredentials aws_credentials_of_environment();

// AWS_REGION, AWS_DEFAULT_REGION, the profile's region in AWS_CONFIG_FILE, else us-east-1.
std::string aws_region_of_environment();

// AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's endpoint_url in AWS_CONFIG_FILE, else "": Amazon's own servers,
// as also where AWS_IGNORE_CONFIGURED_ENDPOINT_URLS is true.
std::string aws_endpoint_of_environment();

// Adds the headers that sign `request` at `time` (seconds since 1970). The path of its address is percent-encoded
// already; its query has sorted, encoded parameters, each with a '='.
void sign_request(HttpRequest& request, const AwsCredentials& credentials, const std::string& region, int64_t time);

}  // namespace titanium::remote
