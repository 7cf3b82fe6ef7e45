// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package reload hands the spans that were counted to the component that comes after: a Collector that reloads its configuration
// ends every component and makes new ones, and clients whose payload was refused by another exporter send it again to the new
// ones, where it would count twice.
package reload

import (
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/otelcol-serving/otelcol-serving/internal/serving"
)

// Key names a component in a configuration. A process that runs several Collectors with the same names hands one's spans
// to another, which costs nothing: span IDs are unique.
type Key struct {
	Kind string
	ID   component.ID
}

type legacy struct {
	seen  *serving.Seen
	until time.Time
}

var (
	mu       sync.Mutex
	legacies = map[Key]legacy{}
)

// Leave keeps seen for the next component of this name, for as long as spans are remembered.
func Leave(key Key, seen *serving.Seen, window time.Duration) {
	mu.Lock()
	defer mu.Unlock()
	forget(time.Now())
	if seen != nil {
		legacies[key] = legacy{seen, time.Now().Add(window)}
	}
}

// Take is what the component of this name before left, once; nil: nothing.
func Take(key Key) *serving.Seen {
	mu.Lock()
	defer mu.Unlock()
	forget(time.Now())
	seen := legacies[key].seen
	delete(legacies, key)
	return seen
}

// Forget forgets all, for tests that are one Collector after the other and send the same spans.
func Forget() {
	mu.Lock()
	defer mu.Unlock()
	clear(legacies)
}

// forget lets go of what is remembered no longer.
func forget(now time.Time) {
	for key, left := range legacies {
		if !left.until.After(now) {
			delete(legacies, key)
		}
	}
}
