/* module.c - the module napier._napier, on which the package is built. */
#include "ext.h"

#include <string.h>

static const struct {
    const char *name, *text;
} docs[] = {
#include "docs.inc"
};

const char *doc_of(const char *owner, const char *name) {
    const size_t length = strlen(owner);
    for (size_t i = 0; i < sizeof docs / sizeof *docs; i++) {
        if (strncmp(docs[i].name, owner, length) == 0 && strcmp(docs[i].name + length, name) == 0) {
            return docs[i].text + (strncmp(docs[i].text, owner, length) == 0 ? length : 0);
        }
    }
    return NULL;
}

void document(PyMethodDef *table, const char *owner) {
    for (PyMethodDef *f = table; f->ml_name; f++) {
        f->ml_doc = f->ml_doc ? f->ml_doc : doc_of(owner, f->ml_name);
    }
}

static int module_start(PyObject *module) {
    PyMethodDef *const tables[] = {
        softmax_functions,   state_functions,        token_functions,       loss_functions,   attention_functions,
        umap_edge_functions, umap_stage_functions,   model_functions,       device_functions, layer_functions,
        shard_functions,     logcumsumexp_functions, umap_raster_functions, context_functions};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        document(tables[i], "");
        if (PyModule_AddFunctions(module, tables[i])) {
            return -1;
        }
    }
    return array_start() || state_start(module) || model_start(module) || context_start(module) ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, module_start}, {0, NULL}};
static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_napier", "Napier's C functions.", 0, NULL, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__napier(void); /* Python.h declares none */
PyMODINIT_FUNC PyInit__napier(void) { return PyModuleDef_Init(&definition); }
