package dev.torchlet;

import java.util.ArrayList;
import java.util.List;

/** Options of backends for {@link Module#load(String, BackendOptionsMap)}. */
public final class BackendOptionsMap {
  private final List<String> settings = new ArrayList<>();

  /** Sets an option of a backend. */
  public BackendOptionsMap setInt(String backendName, String key, int value) {
    settings.add("option:" + backendName + ":" + key);
    settings.add(Integer.toString(value));
    return this;
  }

  public boolean isEmpty() {
    return settings.isEmpty();
  }

  /** Alternating names and values. */
  List<String> settings() {
    return settings;
  }
}
