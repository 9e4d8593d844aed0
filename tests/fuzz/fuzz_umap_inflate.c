/* fuzz_umap_inflate - hostile deflate data: whatever it says, nothing is read or written outside, the same bytes come out
 * each time, and what fits a room fits no other. The first two bytes are the size of the room. */
#include "../../cli/umap_inflate.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in = {data, size};
    const size_t room = (size_t)take_bytes(&in, 2);
    uint8_t *const packed = fuzz_allocate(in.left); /* its own block: a byte too far is noticed */
    uint8_t *const out = fuzz_allocate(room + 1), *const again = fuzz_allocate(room);
    memcpy(packed, in.at, in.left);
    if (inflate_bytes(packed, in.left, again, room)) {
        REQUIRE(inflate_bytes(packed, in.left, out, room) && memcmp(out, again, room) == 0, "other bytes than before");
        REQUIRE(crc32_bytes(out, room) == crc32_bytes(again, room), "another checksum");
        REQUIRE(!inflate_bytes(packed, in.left, out, room + 1), "%zu bytes filled a room of one more", room);
        REQUIRE(room == 0 || !inflate_bytes(packed, in.left, out, room - 1), "%zu bytes filled a room of one less",
                room);
    }
    free(packed);
    free(out);
    free(again);
    return 0;
}
