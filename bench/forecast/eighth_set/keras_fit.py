"""Keras 3 on PyTorch: compile and fit of a text classifier with its own transformer, then of pictures, validation, callbacks, predict."""
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy
keras.utils.set_random_seed(0)
x, y = numpy.random.randint(1, 8000, (640, 160)), numpy.random.randint(0, 12, 640)
inputs = keras.Input((160,), dtype="int32")
h = keras.layers.Embedding(8000, 256)(inputs)
for _ in range(3):
    h = keras.layers.LayerNormalization()(h + keras.layers.MultiHeadAttention(8, 32, dropout=0.1)(h, h))
    h = keras.layers.LayerNormalization()(h + keras.layers.Dense(256)(keras.layers.Dense(1024, activation="gelu")(h)))
words = keras.Model(inputs, keras.layers.Dense(12, activation="softmax")(keras.layers.GlobalAveragePooling1D()(h)))
words.compile(optimizer=keras.optimizers.AdamW(3e-4, clipnorm=1.0), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
words.fit(x, y, batch_size=64, epochs=1, validation_split=0.2, verbose=0)
pictures = keras.applications.EfficientNetV2B0(weights=None, classes=50, input_shape=(128, 128, 3))
pictures.compile(optimizer="rmsprop", loss=keras.losses.CategoricalCrossentropy(label_smoothing=0.1))
a, b = numpy.random.rand(120, 128, 128, 3).astype("float32") * 255, keras.utils.to_categorical(numpy.random.randint(0, 50, 120), 50)
pictures.fit(a, b, batch_size=24, epochs=1, verbose=0, callbacks=[keras.callbacks.EarlyStopping(monitor="loss"), keras.callbacks.TerminateOnNaN()])
print(words.predict(x[:100], verbose=0).shape, pictures.predict(a[:32], verbose=0).shape)
