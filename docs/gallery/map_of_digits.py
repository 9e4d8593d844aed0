# %% [markdown]
# # A map of handwritten digits
# 1,797 digits of 8 x 8 grey values become points of a plane. Equal digits lie together, though the map saw no labels.

# %%
import matplotlib.pyplot as plt
import numpy as np

from napier import UMAP, umap

images = np.load("data/digits/images.npy").reshape(-1, 64)
labels = np.load("data/digits/labels.npy").astype(int)
reducer = UMAP(n_neighbors=15)
points = reducer.fit_transform(images)
points.shape

# %%
reducer.plot(labels)
plt.show()

# %% [markdown]
# How far can it be trusted? A vote of 15 neighbours on the map finds the digit for this share of the points:

# %%
round(umap.quality_of(images, points, labels).knn_accuracy, 3)

# %% [markdown]
# A labelled half pulls the classes apart; the points of the other half, whose label is -1, follow.

# %%
half = np.where(np.arange(len(labels)) % 2, labels, -1)
supervised = UMAP(n_neighbors=15).fit(images, half)
supervised.plot(labels)
plt.show()
