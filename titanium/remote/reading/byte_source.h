// Bytes of a path by range, wherever it leads: a file, https://, s3://, gs://, az:// or hf://. docs/object_stores.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "titanium/remote/transport/retry.h"

namespace titanium::remote {

// There is no such object or bucket.
class NotFound : public UsageError {
 public:
  using UsageError::UsageError;
};

// Thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  virtual int64_t size() const = 0;

  // Fills `out` with the bytes from `offset` on, all of which are inside the source. Throws Error.
  virtual void read(int64_t offset, std::span<char> out) const = 0;
};

// `path` is a file, or an address:
//   http://, https://             any server that answers HEAD and ranges
//   s3://bucket/key               AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL for other servers than Amazon's
//   gs://bucket/key               STORAGE_EMULATOR_HOST for other servers than Google's
//   az://container/blob           of the storage account that azure.h tells
//   hf://owner/name/path          a model of the hub; hf://datasets/owner/name/path a data set; name@revision
// Reads fail for good after `policy`'s deadline, and when the object changes meanwhile. Throws NotFound, Error, or
// UsageError for a scheme that is not supported or credentials that are wrong; no message holds a secret.
std::unique_ptr<ByteSource> open_bytes(const std::string& path, const RetryPolicy& policy = {});

// Whether there is a file or an object of this name; of a folder of a bucket it says nothing. Throws as open_bytes
// does.
bool exists(const std::string& path);

struct RemoteFile {
  std::string path;  // the whole address
  std::string name;  // relative to the folder that was listed
  int64_t size = 0;
  std::string version;  // another one when other bytes are written there (an ETag); empty where the server tells none
};

// All files under an address that is no file (s3://bucket/prefix, hf://...), sorted by name; the file itself when the
// address is one. At the hub a path with * stands for the files that are like it, with their whole paths as names.
// Throws as open_bytes does.
std::vector<RemoteFile> list_files(const std::string& path, const RetryPolicy& policy = {});

}  // namespace titanium::remote
