// torch.save's two containers: the zip archive (since 1.6) and the stream of pickles before it.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "base/checked.h"
#include "base/text.h"
#include "formats/contents.h"
#include "formats/pickle.h"

namespace msprobe::formats {
namespace {

constexpr uint64_t kMaxPickle = 64u << 20;

// Where the storage's bytes are; checks that their number is the one the pickle says.
using FindStorage = std::function<Result<Region>(const PickledStorage&)>;

Status AddTensors(Contents& contents, const Unpickler& pickle, NodeId root,
                  const FindStorage& find) {
  const Node& node = pickle.nodes()[root];
  if (node.kind != Node::Kind::kTensor) contents.holds = Describe(node);
  MSPROBE_ASSIGN(const std::vector<NamedTensor> named, CollectTensors(pickle, root));
  std::unordered_map<uint32_t, Region> regions;
  for (const NamedTensor& entry : named) {
    const PickledTensor& source = pickle.tensors()[entry.tensor];
    auto region = regions.find(source.storage);
    if (region == regions.end()) {
      MSPROBE_ASSIGN(const Region found, find(pickle.storages()[source.storage]));
      region = regions.emplace(source.storage, found).first;
    }
    StoredTensor tensor;
    tensor.name = entry.name;
    tensor.dtype = source.dtype;
    tensor.shape = source.shape;
    tensor.strides = source.strides;
    tensor.requires_grad = source.requires_grad;
    MSPROBE_TRY(PlaceTensor(region->second, source.offset, contents.limits, tensor));
    contents.tensors.push_back(std::move(tensor));
  }
  return {};
}

Result<std::string> ReadMember(const Contents& contents, const std::string& name,
                               uint64_t max_bytes) {
  const archive::ZipEntry* const entry = contents.zip->Find(name);
  if (entry == nullptr) {
    return Error(
        ErrorCode::kMalformed,
        fmt::format("torch archive: member {} is missing or there twice", VisibleText(name)));
  }
  return contents.zip->Read(*entry, max_bytes);
}

Result<Region> FindMember(const Contents& contents, const std::string& stem,
                          const PickledStorage& storage) {
  const std::string name = fmt::format("{}/data/{}", stem, storage.key);
  const archive::ZipEntry* const entry = contents.zip->Find(name);
  if (entry == nullptr) {
    return Error(
        ErrorCode::kMalformed,
        fmt::format("torch archive: member {} is missing or there twice", VisibleText(name)));
  }
  if (entry->size != static_cast<uint64_t>(storage.bytes())) {
    return Error(ErrorCode::kMalformed,
                 fmt::format("torch archive: member {} has {} bytes, its record says {}",
                             VisibleText(name), entry->size, storage.bytes()));
  }
  Region region;
  region.bytes = entry->size;
  region.member = static_cast<uint32_t>(entry - contents.zip->entries().data());
  region.stored = entry->method == 0;
  if (region.stored) {
    MSPROBE_ASSIGN(region.offset, contents.zip->DataOffset(*entry));
  } else if (entry->size > contents.limits.max_bytes) {
    return Error(ErrorCode::kTooLarge,
                 fmt::format("torch archive: member {} inflates to {} bytes; the limit is {}",
                             VisibleText(name), entry->size, contents.limits.max_bytes));
  }
  return region;
}

// ---- the stream
// -------------------------------------------------------------------------------------------------------------

constexpr std::string_view kStreamMagic("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.",
                                        15);

struct Stream {
  std::string bytes;  // of the pickles; the strings of `object` lie in here
  std::unique_ptr<Unpickler> pickle;
  NodeId object = 0;
  std::vector<std::string_view> keys;  // of the storages, in the order of their data
  uint64_t data = 0;                   // offset of the first storage
};

Error StreamError(ErrorCode code, std::string_view message) {
  return Error(code, fmt::format("torch stream: {}", message));
}

Status CheckSystem(const Unpickler& pickle, NodeId info) {
  const std::vector<Node>& nodes = pickle.nodes();
  const std::vector<NodeId>& items = nodes[info].items;
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    if (nodes[items[i]].kind != Node::Kind::kString || nodes[items[i]].text != "little_endian")
      continue;
    if (nodes[items[i + 1]].kind == Node::Kind::kBool && nodes[items[i + 1]].number != 0) return {};
    return StreamError(ErrorCode::kUnsupported, "big-endian data");
  }
  return StreamError(ErrorCode::kMalformed, "the system record is missing");
}

// Magic number, protocol 1001, system record, object, list of storage keys: five pickles in a row.
Result<Stream> ParseStream(std::string bytes) {
  Stream stream;
  stream.bytes = std::move(bytes);
  stream.pickle = std::make_unique<Unpickler>(AsBytes(stream.bytes), 0);
  Unpickler& pickle = *stream.pickle;
  MSPROBE_TRY(pickle.Run());
  MSPROBE_ASSIGN(const NodeId protocol, pickle.Run());
  if (pickle.nodes()[protocol].kind != Node::Kind::kInt || pickle.nodes()[protocol].number != 1001)
    return StreamError(ErrorCode::kUnsupported, "another protocol than 1001");
  MSPROBE_ASSIGN(const NodeId system, pickle.Run());
  MSPROBE_TRY(CheckSystem(pickle, system));
  MSPROBE_ASSIGN(stream.object, pickle.Run());
  MSPROBE_ASSIGN(const NodeId keys, pickle.Run());
  for (const NodeId key : pickle.nodes()[keys].items) {
    if (pickle.nodes()[key].kind != Node::Kind::kString)
      return StreamError(ErrorCode::kMalformed, "a storage key that is no string");
    stream.keys.push_back(pickle.nodes()[key].text);
  }
  stream.data = pickle.position();
  return stream;
}

// Reads as much of the file's head as its pickles need.
Result<Stream> ReadStreamHead(const InputFile& file) {
  for (uint64_t n = 64u << 10;; n *= 8) {
    const bool all = n >= file.size();
    std::string head(static_cast<size_t>(std::min(n, file.size())), '\0');
    MSPROBE_TRY(file.ReadAt(0, std::as_writable_bytes(std::span(head))));
    auto stream = ParseStream(std::move(head));
    if (stream.ok() || all || stream.error().code != ErrorCode::kTruncated) return stream;
    if (n >= kMaxPickle) return StreamError(ErrorCode::kTooLarge, "pickles of more than 64 MiB");
  }
}

// Each storage is its number of elements (int64) and its elements.
Result<std::unordered_map<std::string_view, Region>> LocateStorages(const InputFile& file,
                                                                    const Stream& stream) {
  std::unordered_map<std::string_view, const PickledStorage*> known;
  for (const PickledStorage& storage : stream.pickle->storages())
    known.emplace(storage.key, &storage);
  std::unordered_map<std::string_view, Region> regions;
  uint64_t at = stream.data;
  for (const std::string_view key : stream.keys) {
    const auto storage = known.find(key);
    if (storage == known.end())
      return StreamError(ErrorCode::kMalformed,
                         fmt::format("storage {} belongs to nothing", VisibleText(key)));
    int64_t numel = 0;
    MSPROBE_TRY(file.ReadAt(at, std::as_writable_bytes(std::span(&numel, 1))));
    at += sizeof(numel);
    if (numel != storage->second->numel) {
      return StreamError(ErrorCode::kMalformed,
                         fmt::format("storage {} has {} elements, its record says {}",
                                     VisibleText(key), numel, storage->second->numel))
          .AtOffset(at - sizeof(numel));
    }
    const auto bytes = static_cast<uint64_t>(storage->second->bytes());
    if (at > file.size() || bytes > file.size() - at) {
      return StreamError(ErrorCode::kTruncated,
                         fmt::format("storage {} of {} bytes is cut off", VisibleText(key), bytes))
          .AtOffset(file.size());
    }
    regions.emplace(key, Region{.offset = at, .bytes = bytes});
    at += bytes;
  }
  if (at != file.size())
    return StreamError(ErrorCode::kMalformed, fmt::format("{} bytes too many", file.size() - at))
        .AtOffset(at);
  return regions;
}

}  // namespace

Status ReadPtArchive(Contents& contents, std::string_view stem_view) {
  contents.format = "pt";
  const std::string stem(stem_view);
  if (contents.zip->Find(stem + "/constants.pkl") != nullptr)
    return Error(ErrorCode::kUnsupported, "a TorchScript archive, not a tensor");
  if (contents.zip->Find(stem + "/byteorder") != nullptr) {
    MSPROBE_ASSIGN(const std::string order, ReadMember(contents, stem + "/byteorder", 16));
    if (order != "little")
      return Error(ErrorCode::kUnsupported,
                   fmt::format("torch archive: byte order {}", VisibleText(order)));
  }
  const std::string name = stem + "/data.pkl";
  MSPROBE_ASSIGN(const std::string bytes, ReadMember(contents, name, kMaxPickle));
  const archive::ZipEntry& entry = *contents.zip->Find(name);
  uint64_t base = 0;
  if (entry.method == 0) {
    MSPROBE_ASSIGN(base, contents.zip->DataOffset(entry));
  }
  Unpickler pickle(AsBytes(bytes), base);
  MSPROBE_ASSIGN(const NodeId root, pickle.Run());
  if (pickle.position() != bytes.size())
    return Error(ErrorCode::kMalformed, "pickle: goes on after its STOP")
        .AtOffset(base + pickle.position());
  return AddTensors(contents, pickle, root,
                    [&](const PickledStorage& s) { return FindMember(contents, stem, s); });
}

Status ReadPtStream(Contents& contents) {
  contents.format = "pt";
  std::string magic(
      static_cast<size_t>(std::min<uint64_t>(contents.file.size(), kStreamMagic.size())), '\0');
  MSPROBE_TRY(contents.file.ReadAt(0, std::as_writable_bytes(std::span(magic))));
  if (magic != kStreamMagic) {
    if (kStreamMagic.starts_with(magic))
      return StreamError(ErrorCode::kTruncated, "ends in its first pickle");
    return Error(ErrorCode::kUnsupported, "a bare pickle, not a file of torch.save");
  }
  MSPROBE_ASSIGN(const Stream stream, ReadStreamHead(contents.file));
  MSPROBE_ASSIGN(const auto regions, LocateStorages(contents.file, stream));
  return AddTensors(
      contents, *stream.pickle, stream.object, [&](const PickledStorage& s) -> Result<Region> {
        const auto region = regions.find(s.key);
        if (region == regions.end())
          return StreamError(ErrorCode::kMalformed,
                             fmt::format("storage {} has no data", VisibleText(s.key)));
        return region->second;
      });
}

}  // namespace msprobe::formats
