// Containers of Azure's blob storage: az://container/path.
#pragma once

#include <string>

#include "titanium/remote/transport/http.h"

namespace titanium::remote {

// The storage account, and who asks. As Azure's tools have them: AZURE_STORAGE_CONNECTION_STRING, or
// AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY (a shared key) or AZURE_STORAGE_SAS_TOKEN; none of these two for public
// containers, and for the identity of the machine with AZURE_STORAGE_AUTH_MODE = login (role_credentials.h).
// AZURE_STORAGE_ENDPOINT for other servers than Azure's, as https://account.blob.core.windows.net.
struct AzureAccount {
  std::string name;
  std::string key;  // in base64; may be empty
  std::string sas;  // a query; may be empty
  bool as_role = false;
  std::string endpoint;
};
AzureAccount azure_account_of_environment();

// Adds the headers that sign `request` with the account's key at `time` (seconds since 1970). Throws UsageError when
// the key is not base64.
void sign_request(HttpRequest& request, const AzureAccount& account, int64_t time);

class AzureContainer {
 public:
  // The container of `url`; the rest of it does not matter. Throws UsageError when no account is known.
  explicit AzureContainer(const std::string& url);

  // Signed now. `query` is encoded; `range` may be empty.
  HttpRequest request(const std::string& method, const std::string& blob, const std::string& query,
                      const std::string& range) const;
  // Throws what an answer without success means for the user, as Bucket::explain does.
  [[noreturn]] void explain(const HttpResponse& response, const std::string& path) const;
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  AzureAccount account_;
};

}  // namespace titanium::remote
