/* umap_raster.c - points and lines in the pixels of a picture. */
#include "umap_call.h"

static const field frame_fields[] = {FIELD(napier_umap_frame, left, 'd'),
                                     FIELD(napier_umap_frame, right, 'd'),
                                     FIELD(napier_umap_frame, bottom, 'd'),
                                     FIELD(napier_umap_frame, top, 'd'),
                                     FIELD(napier_umap_frame, width, 'l'),
                                     FIELD(napier_umap_frame, height, 'l'),
                                     FIELDS_END};

/* Takes sums [pixels, channels] of this frame. Products of bad sizes are the library's to refuse. */
static bool work_sums(umap_work *w, int place, const napier_umap_frame *f, int64_t channels, array **sums) {
    const bool fits = f->width > 0 && f->width <= INT32_MAX && f->height > 0 && f->height <= INT32_MAX;
    return work_array(w, place, "sums", 'l', 2, WRITABLE, sums) &&
           shape_is(*sums, "sums", fits ? f->width * f->height : -1, channels);
}

/* places, codes or None, amounts, sums */
RAW(raster_points) {
    START(raster_points, 5)
    napier_umap_frame frame = {0};
    napier_const_matrix places;
    array *codes, *amounts, *sums;
    const bool good = work_fields(&w, frame_fields, &frame) && work_matrix(&w, 0, "points", &places) &&
                      work_array(&w, 1, "codes", 'i', 1, OPTIONAL, &codes) &&
                      shape_is(codes, "codes", places.rows, -1) && work_array(&w, 2, "amounts", 'i', 2, 0, &amounts) &&
                      work_sums(&w, 3, &frame, amounts->shape[1], &sums) &&
                      WORK(&w, napier_umap_raster_points(w.context, &frame, places, elements(codes), elements(amounts),
                                                         amounts->shape[0], amounts->shape[1], elements(sums)));
    return work_end(&w, good, good ? Py_NewRef(Py_None) : NULL);
}

/* places, amounts, sums */
RAW(raster_lines) {
    START(raster_lines, 4)
    napier_umap_frame frame = {0};
    napier_const_matrix places;
    array *amounts, *sums;
    const bool good = work_fields(&w, frame_fields, &frame) && work_matrix(&w, 0, "points", &places) &&
                      work_array(&w, 1, "amounts", 'i', 1, 0, &amounts) &&
                      shape_is(amounts, "amounts", places.rows, -1) && work_sums(&w, 2, &frame, 1, &sums) &&
                      WORK(&w, napier_umap_raster_lines(w.context, &frame, places, elements(amounts), elements(sums)));
    return work_end(&w, good, good ? Py_NewRef(Py_None) : NULL);
}

PyMethodDef umap_raster_functions[] = {FUNCTION(raster_points), FUNCTION(raster_lines), {NULL, NULL, 0, NULL}};
