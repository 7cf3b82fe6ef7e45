// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package summary

// How serving_metrics and the page find each other: the extension implements Registry, serving_metrics looks it up among
// the host's extensions and registers a Reporter for as long as it runs.

import "time"

// Registry is implemented by the serving_summary extension.
type Registry interface {
	// Register adds a reporter until the returned function is called.
	Register(Reporter) (unregister func())
}

// Reporter is one serving_metrics component. Its methods may be called at any time, by many at once; what they return is
// the caller's, and engines are in no order.
type Reporter interface {
	// Source is what the component received.
	Source() Source
	// Engines are all engines that it knows.
	Engines(now time.Time) []Engine
	// Engine is one engine in full, and false if it does not know key.
	Engine(key string, now time.Time) (EngineReport, bool)
}
