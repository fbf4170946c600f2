// Credentials that clouds give to the machines, containers and pods that they run, so that no key has to lie there.
// docs/object_stores.md says which variables name them. All functions are thread-safe, keep what they have been given
// until shortly before it expires, and then ask again. They throw Error when a place that the environment names does
// not answer as it should; a machine that belongs to no cloud has no credentials.
#pragma once

#include <string>

#include "titanium/remote/stores/aws_signature.h"

namespace titanium::remote {

// The credentials of a role of Amazon's, or none: those of the pod's service account (AWS_WEB_IDENTITY_TOKEN_FILE with
// AWS_ROLE_ARN), of the container (AWS_CONTAINER_CREDENTIALS_FULL_URI or AWS_CONTAINER_CREDENTIALS_RELATIVE_URI), else
// of the machine (version 2 of its metadata service, unless AWS_EC2_METADATA_DISABLED is true).
AwsCredentials aws_role_credentials();

// Whether a container's token may go there: over HTTPS, or to this machine and the services that its cloud has on it.
bool may_get_container_token(const Url& url);

// The token of a person's application default credentials at Google (GOOGLE_APPLICATION_CREDENTIALS, else the file that
// gcloud has left), else that of the machine's or pod's account, or "" (also where NO_GCE_CHECK is true). Throws
// UsageError where the file holds credentials of another kind.
std::string google_role_token();

// The token for storage of the machine's or pod's identity at Azure. Asked for only where the user wants it
// (AZURE_STORAGE_AUTH_MODE=login), so that there is a sentence where there is none.
std::string azure_role_token();

}  // namespace titanium::remote
