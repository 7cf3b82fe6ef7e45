// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package timeline turns the finished requests of one inference engine into a series of
// event-time windows: what ran, what waited, how busy the device was, how far from full the
// engine was, and how much of all that the requests seen so far can support.
//
// A request is known only once it has finished, so a window is closed a grace period after its
// end and then says how complete it is. Everything that decides about a window is event time;
// the wall clock only moves engines along that have fallen silent. The same requests in any
// order within Config.Disorder therefore give the same windows, live or replayed.
package timeline
