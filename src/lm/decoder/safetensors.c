/* lm/decoder/safetensors.c - maps the files, checks their headers, and sorts the tensors by name. */
#define _POSIX_C_SOURCE 200809L

#include "lm/decoder/safetensors.h"

#include <string.h>

#include <cjson/cJSON.h>

#include "core/base/bytes.h"
#include "core/base/platform.h"
#include "lm/text/file.h"
#include "lm/text/json.h"
#include "core/base/scope.h"

static const size_t most_header = (size_t)100 << 20; /* the limit in the format's definition */
static const size_t most_index = (size_t)100 << 20;
enum { MOST_TENSORS = 1 << 20 };                     /* ten times as many as in the largest models */
static const int64_t most_number = (int64_t)1 << 53; /* integers that JSON's doubles represent exactly */

/* A mapped file with its tensors. */
typedef struct shard {
    const uint8_t *map;
    size_t size;
    char *names; /* the names of its tensors, one after another */
    napier_tensor *tensors;
    int64_t count;
} shard;

struct napier_safetensors {
    shard *shards;
    int64_t shard_count;
    napier_tensor *tensors; /* of all shards, sorted by name */
    int64_t count;
    char *names;             /* of the caller's tensors, one after another; NULL: the shards have the names */
    napier_status of_misfit; /* safetensors.h */
};

/* ---- A tensor's entry -------------------------------------------------------------------------------------------- */

typedef struct element_kind {
    const char *name;
    int64_t size;
    napier_dtype dtype; /* 0: in the format, but not supported by Napier */
} element_kind;

static const element_kind kinds[] = {
    {"F32", 4, NAPIER_F32}, {"F16", 2, NAPIER_F16}, {"BF16", 2, NAPIER_BF16},
    {"F64", 8, NAPIER_F64}, {"BOOL", 1, 0},         {"U8", 1, 0},
    {"I8", 1, 0},           {"F8_E4M3", 1, 0},      {"F8_E5M2", 1, 0},
    {"F8_E8M0", 1, 0},      {"I16", 2, 0},          {"U16", 2, 0},
    {"I32", 4, 0},          {"U32", 4, 0},          {"I64", 8, 0},
    {"U64", 8, 0},          {"C64", 8, 0},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static napier_status tensor_fail(napier_json *json, const char *name, const char *what, const cJSON *value) {
    return napier_json_fail(json, NAPIER_CORRUPT_DATA, "%s: %s %s", napier_show_text(name).text, what,
                            napier_show_item(value).text);
}

static napier_status read_shape(napier_json *json, const cJSON *list, napier_tensor *tensor) {
    const cJSON *item;
    if (!cJSON_IsArray(list)) {
        return tensor_fail(json, tensor->name, "shape is", list);
    }
    tensor->elements = 1;
    cJSON_ArrayForEach(item, list) {
        if (!napier_json_is_integer(item, 0, most_number)) {
            return tensor_fail(json, tensor->name, "shape has", item);
        }
        if (tensor->ndim == NAPIER_TENSOR_DIMS) {
            return tensor_fail(json, tensor->name, "shape has too many dimensions, the last", item);
        }
        const int64_t size = (int64_t)item->valuedouble;
        if (size > 0 && tensor->elements > most_number / size) {
            return tensor_fail(json, tensor->name, "shape has more elements than memory can, with", item);
        }
        tensor->shape[tensor->ndim++] = size;
        tensor->elements *= size;
    }
    return NAPIER_OK;
}

static napier_status read_offsets(napier_json *json, const cJSON *list, int64_t data_size, napier_tensor *tensor) {
    const cJSON *const first = cJSON_IsArray(list) ? list->child : NULL;
    const cJSON *const last = first != NULL ? first->next : NULL;
    if (last == NULL || last->next != NULL) {
        return tensor_fail(json, tensor->name, "data_offsets is not two numbers but", list);
    }
    if (!napier_json_is_integer(first, 0, data_size)) {
        return tensor_fail(json, tensor->name, "data_offsets lie outside of the file:", first);
    }
    tensor->begin = (int64_t)first->valuedouble;
    if (!napier_json_is_integer(last, tensor->begin, data_size)) {
        return tensor_fail(json, tensor->name, "data_offsets end before they begin or outside of the file:", last);
    }
    tensor->end = (int64_t)last->valuedouble;
    return NAPIER_OK;
}

/* A dtype that is not in the table has an unknown size. It is accepted, because no caller can get the tensor. */
static napier_status check_extent(napier_json *json, const char *dtype, napier_tensor *t) {
    size_t i = 0;
    while (i < KINDS && strcmp(kinds[i].name, dtype) != 0) {
        i++;
    }
    if (i == KINDS) {
        return NAPIER_OK;
    }
    t->dtype = kinds[i].dtype;
    if (t->elements <= most_number / kinds[i].size && t->elements * kinds[i].size == t->end - t->begin) {
        return NAPIER_OK;
    }
    return napier_json_fail(json, NAPIER_CORRUPT_DATA, "%s: %lld bytes for %lld elements of %s",
                            napier_show_text(t->name).text, (long long)(t->end - t->begin), (long long)t->elements,
                            dtype);
}

static napier_status read_tensor(napier_json *json, const cJSON *item, const uint8_t *data, int64_t data_size,
                                 napier_tensor *tensor) {
    const char *dtype = NULL;
    if (!cJSON_IsObject(item)) {
        return tensor_fail(json, tensor->name, "is no tensor but", item);
    }
    napier_json_text(json, item, "dtype", &dtype);
    if (dtype == NULL) {
        return tensor_fail(json, tensor->name, "dtype is", NULL);
    }
    read_shape(json, napier_json_member(json, item, "shape"), tensor);
    read_offsets(json, napier_json_member(json, item, "data_offsets"), data_size, tensor);
    check_extent(json, dtype, tensor);
    tensor->data = data + tensor->begin;
    return json->status;
}

/* ---- A file's header --------------------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b) {
    const napier_tensor *const x = a, *const y = b;
    return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin) : (x->end > y->end) - (x->end < y->end);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const napier_tensor *)a)->name, ((const napier_tensor *)b)->name);
}

static napier_status check_overlap(napier_json *json, napier_tensor *tensors, int64_t count) {
    qsort(tensors, (size_t)count, sizeof *tensors, by_place);
    for (int64_t i = 1; i < count; i++) {
        const napier_tensor *const a = &tensors[i - 1], *const b = &tensors[i];
        if (b->begin < a->end) {
            return napier_json_fail(json, NAPIER_CORRUPT_DATA, "%s and %s overlap at byte %lld of the data",
                                    napier_show_text(a->name).text, napier_show_text(b->name).text,
                                    (long long)b->begin);
        }
    }
    return NAPIER_OK;
}

/* Sorts by name. Returns a name that occurs twice, or NULL. */
static const char *sort_by_name(napier_tensor *tensors, int64_t count) {
    qsort(tensors, (size_t)count, sizeof *tensors, by_name);
    for (int64_t i = 1; i < count; i++) {
        if (strcmp(tensors[i - 1].name, tensors[i].name) == 0) {
            return tensors[i].name;
        }
    }
    return NULL;
}

static napier_status sort_names(napier_json *json, napier_tensor *tensors, int64_t count) {
    const char *const twice = sort_by_name(tensors, count);
    return twice == NULL ? NAPIER_OK
                         : napier_json_fail(json, NAPIER_CORRUPT_DATA, "%s: given twice", napier_show_text(twice).text);
}

/* Reads the parsed header into s->tensors, which has space for all. */
static napier_status read_tensors(napier_json *json, shard *s, const uint8_t *data, int64_t data_size) {
    char *name = s->names;
    const cJSON *item;
    cJSON_ArrayForEach(item, json->root) {
        if (strcmp(item->string, "__metadata__") == 0) {
            continue;
        }
        napier_tensor *const tensor = &s->tensors[s->count++];
        *tensor = (napier_tensor){.name = name};
        const size_t length = strlen(item->string) + 1;
        memcpy(name, item->string, length);
        name += length;
        if (read_tensor(json, item, data, data_size, tensor)) {
            return json->status;
        }
    }
    NAPIER_TRY(check_overlap(json, s->tensors, s->count));
    return sort_names(json, s->tensors, s->count);
}

/* Counts the members before memory is allocated for them. */
static napier_status count_tensors(napier_json *json, const cJSON *object, size_t *count) {
    *count = (size_t)cJSON_GetArraySize(object);
    return *count <= MOST_TENSORS
               ? NAPIER_OK
               : napier_json_fail(json, NAPIER_UNSUPPORTED, "%zu tensors, more than %d", *count, MOST_TENSORS);
}

static napier_status read_header(napier_json *json, shard *s) {
    const uint64_t length = napier_get_u64(s->map);
    if (length > s->size - 8) {
        return napier_json_fail(json, NAPIER_CORRUPT_DATA, "a header of %llu bytes in a file of %zu",
                                (unsigned long long)length, s->size);
    }
    if (length > most_header) {
        return napier_json_fail(json, NAPIER_CORRUPT_DATA, "a header of %llu bytes, more than the format allows",
                                (unsigned long long)length);
    }
    size_t count;
    const uint8_t *const text = s->map + 8, *const data = text + length;
    if (napier_json_parse(json, json->context, json->name, (const char *)text, (size_t)length) ||
        count_tensors(json, json->root, &count)) {
        return json->status;
    }
    s->names = napier_alloc(&json->context->allocator, (size_t)length + 1, 1); /* no more than in JSON */
    s->tensors = napier_alloc(&json->context->allocator, count + 1, sizeof *s->tensors);
    if (!s->names || !s->tensors) {
        return napier_json_fail(json, NAPIER_OUT_OF_MEMORY, "no memory for its %zu tensors", count);
    }
    return read_tensors(json, s, data, (int64_t)(s->size - 8 - (size_t)length));
}

static napier_status map_file(napier_json *json, int fd, shard *s) {
    if (s->size < 8) {
        return napier_json_fail(json, NAPIER_CORRUPT_DATA, "%zu bytes, where the length of the header takes 8",
                                s->size);
    }
    s->map = napier_map_file(fd, s->size);
    return s->map != NULL ? NAPIER_OK
                          : napier_json_fail(json, NAPIER_IO_ERROR, "cannot be mapped: %s", strerror(errno));
}

/* Call shard_free afterwards, also after a failure. */
static napier_status shard_open(napier_context *context, const char *path, shard *s) {
    int fd;
    napier_json json = {context, path, NULL, NAPIER_OK};
    *s = (shard){0};
    NAPIER_TRY(napier_open_file(context, path, &fd, &s->size));
    napier_status status = map_file(&json, fd, s);
    close(fd);
    status = status ? status : read_header(&json, s);
    napier_json_free(&json);
    return status;
}

static void shard_free(napier_context *context, shard *s) {
    if (s->map != NULL) {
        napier_unmap_file(s->map, s->size);
    }
    napier_free(&context->allocator, s->names);
    napier_free(&context->allocator, s->tensors);
}

/* ---- The index of shards ----------------------------------------------------------------------------------------- */

/* An entry of the index: the file of a tensor. The strings belong to the JSON document. */
typedef struct place {
    const char *tensor, *file;
} place;

static int by_file_and_tensor(const void *a, const void *b) {
    const place *const x = a, *const y = b;
    const int order = strcmp(x->file, y->file);
    return order != 0 ? order : strcmp(x->tensor, y->tensor);
}

/* True if a shard's name is a plain file name, without a path: it must be in the folder of the index. */
static bool is_plain_name(const char *name) {
    return *name != '\0' && *name != '.' && strchr(name, '/') == NULL && strchr(name, '\\') == NULL;
}

static napier_status read_places(napier_json *json, const cJSON *map, place *places, int64_t *count) {
    const cJSON *item;
    *count = 0;
    cJSON_ArrayForEach(item, map) {
        if (!cJSON_IsString(item) || !is_plain_name(item->valuestring)) {
            return tensor_fail(json, item->string, "its shard is no name of a file in this folder:", item);
        }
        places[(*count)++] = (place){item->string, item->valuestring};
    }
    qsort(places, (size_t)*count, sizeof *places, by_file_and_tensor);
    return NAPIER_OK;
}

/* Takes the tensors that the index assigns to this shard, and ignores others in it. */
static napier_status take_tensors(napier_json *json, napier_safetensors *all, const shard *s, const place *places,
                                  int64_t count) {
    int64_t next = 0;
    for (int64_t i = 0; i < count; i++) {
        while (next < s->count && strcmp(s->tensors[next].name, places[i].tensor) < 0) {
            next++;
        }
        if (next == s->count || strcmp(s->tensors[next].name, places[i].tensor) != 0) {
            return napier_json_fail(json, NAPIER_CORRUPT_DATA, "%s: not in its shard, %s",
                                    napier_show_text(places[i].tensor).text, napier_show_text(places[i].file).text);
        }
        all->tensors[all->count++] = s->tensors[next];
    }
    return NAPIER_OK;
}

/* Opens one shard, whose tensors are `places`. */
static napier_status add_shard(napier_json *json, const char *folder, const place *places, int64_t count,
                               napier_safetensors *all) {
    char *path;
    NAPIER_MEMORY(memory, json->context);
    NAPIER_TRY(napier_join_path(&memory, folder, places->file, &path));
    shard *const s = &all->shards[all->shard_count++];
    NAPIER_TRY(shard_open(json->context, path, s));
    return take_tensors(json, all, s, places, count);
}

static napier_status open_shards(napier_json *json, const char *folder, const place *places, int64_t count,
                                 napier_safetensors *all) {
    for (int64_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && strcmp(places[end].file, places[i].file) == 0;) {
            end++;
        }
        NAPIER_TRY(add_shard(json, folder, places + i, end - i, all));
    }
    return sort_names(json, all->tensors, all->count);
}

static napier_status open_index(napier_json *json, const char *folder, napier_safetensors *all) {
    const cJSON *const map = napier_json_member(json, json->root, "weight_map");
    size_t most = 0;
    int64_t count = 0;
    if (!cJSON_IsObject(map)) {
        return napier_json_fail(json, NAPIER_CORRUPT_DATA, "weight_map: %s, where an object should be",
                                napier_show_item(map).text);
    }
    if (count_tensors(json, map, &most)) {
        return json->status;
    }
    const napier_allocator *const allocator = &json->context->allocator;
    NAPIER_MEMORY(memory, json->context);
    place *const places = napier_take(&memory, (int64_t)most, sizeof *places);
    all->shards = napier_alloc(allocator, most + 1, sizeof *all->shards);
    all->tensors = napier_alloc(allocator, most + 1, sizeof *all->tensors);
    if (!all->shards || !all->tensors || !places) {
        return napier_json_fail(json, NAPIER_OUT_OF_MEMORY, "no memory for %zu tensors", most);
    }
    NAPIER_TRY(read_places(json, map, places, &count));
    return open_shards(json, folder, places, count, all);
}

static napier_status read_index(napier_context *context, const char *path, const char *folder,
                                napier_safetensors *all) {
    napier_json json;
    napier_status status = napier_json_load(&json, context, path, most_index);
    status = status ? status : open_index(&json, folder, all);
    napier_json_free(&json);
    return status;
}

/* ---- Opening and closing ----------------------------------------------------------------------------------------- */

static napier_status open_one(napier_context *context, const char *path, napier_safetensors *all) {
    all->shards = napier_alloc(&context->allocator, 1, sizeof *all->shards);
    if (all->shards == NULL) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "safetensors: no memory");
    }
    shard *const s = all->shards;
    all->shard_count = 1;
    NAPIER_TRY(shard_open(context, path, s));
    all->tensors = s->tensors; /* all tensors of the file are the set's */
    all->count = s->count;
    s->tensors = NULL;
    return NAPIER_OK;
}

/* Opens the single file, or the shards of the index. */
static napier_status open_folder(napier_context *context, const char *folder, napier_safetensors *all) {
    NAPIER_MEMORY(memory, context);
    char *single, *index;
    NAPIER_TRY(napier_join_path(&memory, folder, "model.safetensors", &single));
    NAPIER_TRY(napier_join_path(&memory, folder, "model.safetensors.index.json", &index));
    if (access(single, F_OK) == 0) {
        return open_one(context, single, all);
    }
    if (access(index, F_OK) == 0) {
        return read_index(context, index, folder, all);
    }
    return napier_fail(context, NAPIER_IO_ERROR,
                       "%.96s: neither model.safetensors nor model.safetensors.index.json is there", folder);
}

typedef napier_status opener(napier_context *context, const char *path, napier_safetensors *all);

static napier_status open_with(napier_context *context, opener *open_it, const char *path, napier_safetensors **out) {
    const uint16_t one = 1;
    *out = NULL;
    if (*(const uint8_t *)&one != 1) {
        return napier_fail(context, NAPIER_UNSUPPORTED, "safetensors: little-endian files, on a big-endian machine");
    }
    *out = napier_alloc(&context->allocator, 1, sizeof **out);
    if (*out == NULL) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "safetensors: no memory");
    }
    **out = (napier_safetensors){.of_misfit = NAPIER_CORRUPT_DATA};
    const napier_status status = open_it(context, path, *out);
    if (status) {
        napier_safetensors_close(context, *out);
        *out = NULL;
    }
    return status;
}

napier_status napier_safetensors_open(napier_context *context, const char *folder, napier_safetensors **out) {
    return open_with(context, open_folder, folder, out);
}

napier_status napier_safetensors_open_file(napier_context *context, const char *path, napier_safetensors **out) {
    return open_with(context, open_one, path, out);
}

void napier_safetensors_close(napier_context *context, napier_safetensors *all) {
    if (all == NULL) {
        return;
    }
    for (int64_t i = 0; i < all->shard_count; i++) {
        shard_free(context, &all->shards[i]);
    }
    for (int64_t i = 0; i < all->count; i++) {
        napier_free(&context->allocator, all->tensors[i].copy);
    }
    napier_free(&context->allocator, all->shards);
    napier_free(&context->allocator, all->tensors);
    napier_free(&context->allocator, all->names);
    napier_free(&context->allocator, all);
}

/* ---- Tensors of the caller --------------------------------------------------------------------------------------- */

/* Checks tensors[i] and makes *out a view of it, under its own name. */
static napier_status view(napier_context *context, const napier_named_tensor *given, int64_t i, napier_tensor *out) {
    const napier_named_tensor *const t = &given[i];
    NAPIER_REFUSE_IF(context, !t->name, "tensors[%lld]: name is NULL", (long long)i);
    const napier_shown name = napier_show_text(t->name);
    const size_t size = napier_dtype_size(t->dtype);
    NAPIER_REFUSE_IF(context, size == 0, "%s: dtype %d is unknown", name.text, (int)t->dtype);
    NAPIER_REFUSE_IF(context, t->ndim < 0 || t->ndim > NAPIER_TENSOR_DIMS || (t->ndim > 0 && !t->shape),
                     "%s: ndim is %lld and shape is %p", name.text, (long long)t->ndim, (const void *)t->shape);
    *out = (napier_tensor){.name = t->name, .data = t->data, .dtype = t->dtype, .ndim = (int)t->ndim, .elements = 1};
    for (int d = 0; d < out->ndim; d++) {
        const int64_t most = out->elements > 0 ? most_number / out->elements : most_number;
        NAPIER_REFUSE_IF(context, t->shape[d] < 0 || t->shape[d] > most, "%s: shape[%d] is %lld", name.text, d,
                         (long long)t->shape[d]);
        out->shape[d] = t->shape[d];
        out->elements *= t->shape[d];
    }
    NAPIER_REFUSE_IF(context, out->elements > 0 && (!t->data || (uintptr_t)t->data % size != 0),
                     "%s: data %p is no address of elements of %zu bytes", name.text, t->data, size);
    return NAPIER_OK;
}

/* Copies the names of all tensors to memory of the set. */
static napier_status copy_names(napier_context *context, napier_safetensors *all) {
    size_t size = 1;
    for (int64_t i = 0; i < all->count; i++) {
        size += strlen(all->tensors[i].name) + 1;
    }
    char *at = all->names = napier_alloc(&context->allocator, size, 1);
    if (at == NULL) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "tensors: no memory for %zu bytes of names", size);
    }
    for (int64_t i = 0; i < all->count; i++) {
        const size_t length = strlen(all->tensors[i].name) + 1;
        all->tensors[i].name = memcpy(at, all->tensors[i].name, length);
        at += length;
    }
    return NAPIER_OK;
}

static napier_status view_all(napier_context *context, const napier_named_tensor *given, int64_t count,
                              napier_safetensors *all) {
    all->tensors = napier_alloc(&context->allocator, (size_t)count + 1, sizeof *all->tensors);
    if (all->tensors == NULL) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "tensors: no memory for %lld", (long long)count);
    }
    for (int64_t i = 0; i < count; i++) {
        NAPIER_TRY(view(context, given, i, &all->tensors[i]));
    }
    all->count = count;
    NAPIER_TRY(copy_names(context, all));
    const char *const twice = sort_by_name(all->tensors, count);
    return twice == NULL ? NAPIER_OK
                         : napier_fail(context, all->of_misfit, "%s: given twice", napier_show_text(twice).text);
}

napier_status napier_safetensors_view(napier_context *context, const napier_named_tensor *tensors, int64_t count,
                                      napier_status misfit, napier_safetensors **out) {
    *out = NULL;
    NAPIER_REFUSE_IF(context, count < 0 || count > MOST_TENSORS || (count > 0 && !tensors),
                     "tensors: %p, and count is %lld", (const void *)tensors, (long long)count);
    napier_safetensors *const all = napier_alloc(&context->allocator, 1, sizeof *all);
    if (all == NULL) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "tensors: no memory");
    }
    *all = (napier_safetensors){.of_misfit = misfit};
    const napier_status status = view_all(context, tensors, count, all);
    if (status) {
        napier_safetensors_close(context, all);
        return status;
    }
    *out = all;
    return NAPIER_OK;
}

/* ---- Looking up -------------------------------------------------------------------------------------------------- */

int64_t napier_safetensors_count(const napier_safetensors *all) { return all->count; }

const napier_tensor *napier_safetensors_at(const napier_safetensors *all, int64_t i) { return &all->tensors[i]; }

napier_status napier_safetensors_misfit(const napier_safetensors *all) { return all->of_misfit; }

static napier_tensor *find(const napier_safetensors *all, const char *name) {
    const napier_tensor wanted = {.name = name};
    return bsearch(&wanted, all->tensors, (size_t)all->count, sizeof *all->tensors, by_name);
}

const napier_tensor *napier_safetensors_find(const napier_safetensors *all, const char *name) {
    return find(all, name);
}

/* Formats a shape, such as "[3, 4]". */
static napier_shown show_shape(int ndim, const int64_t *shape) {
    napier_shown shown = {"["};
    size_t used = 1;
    for (int i = 0; i < ndim && used < sizeof shown.text - 26; i++) {
        used += (size_t)snprintf(shown.text + used, sizeof shown.text - used, "%s%lld", i > 0 ? ", " : "",
                                 (long long)shape[i]);
    }
    snprintf(shown.text + used, sizeof shown.text - used, "]");
    return shown;
}

static bool has_shape(const napier_tensor *t, int ndim, const int64_t *shape) {
    return t->ndim == ndim && (ndim == 0 || memcmp(t->shape, shape, (size_t)ndim * sizeof *shape) == 0);
}

/* Copies a tensor that is not aligned in the file to aligned memory. */
static napier_status align(napier_context *context, napier_tensor *t) {
    const size_t size = napier_dtype_size(t->dtype), count = (size_t)t->elements;
    if ((uintptr_t)t->data % size == 0 || count == 0) {
        return NAPIER_OK;
    }
    t->copy = napier_alloc(&context->allocator, count, size);
    if (t->copy == NULL) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY,
                           "%s: no memory for a copy of %zu elements, which lie on no multiple of %zu in the file",
                           t->name, count, size);
    }
    t->data = memcpy(t->copy, t->data, count * size);
    return NAPIER_OK;
}

napier_status napier_safetensors_get(napier_context *context, napier_safetensors *all, const char *name, int ndim,
                                     const int64_t *shape, const napier_tensor **out) {
    napier_tensor *const t = find(all, name);
    *out = NULL;
    if (t == NULL) {
        return napier_fail(context, all->of_misfit, "%s: not among the %lld tensors of the model", name,
                           (long long)all->count);
    }
    if (!has_shape(t, ndim, shape)) {
        return napier_fail(context, all->of_misfit, "%s: its shape is %s, but %s is wanted", name,
                           show_shape(t->ndim, t->shape).text, show_shape(ndim, shape).text);
    }
    if (napier_dtype_size(t->dtype) == 0) {
        return napier_fail(context, NAPIER_UNSUPPORTED, "%s: its dtype is none of F32, F16, BF16, F64", name);
    }
    NAPIER_TRY(align(context, t));
    t->used = 1;
    *out = t;
    return NAPIER_OK;
}
