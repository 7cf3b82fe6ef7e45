// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package history

// Spans of time of equal length, of which the most recently used are kept.

import (
	"cmp"
	"slices"
	"time"
)

// slots are spans of time by their start. When there are too many, the one that was used longest ago goes, not the
// oldest: a clock that jumps leaves one slot behind and does not stop the rest.
type slots[T any] struct {
	length int64 // ns
	limit  int
	retire func(start int64, value *T) // of what goes; may be nil
	all    []slot[T]
	last   int // index of the one used last
	used   uint64
}

type slot[T any] struct {
	start int64 // Unix ns
	used  uint64
	value T
}

func newSlots[T any](length time.Duration, limit int, retire func(start int64, value *T)) slots[T] {
	return slots[T]{length: int64(length), limit: limit, retire: retire}
}

// at is the slot of time t, made if there is none.
func (s *slots[T]) at(t int64) *T {
	start := t - t%s.length
	s.used++
	if s.last < len(s.all) && s.all[s.last].start == start {
		s.all[s.last].used = s.used
		return &s.all[s.last].value
	}
	i := slices.IndexFunc(s.all, func(x slot[T]) bool { return x.start == start })
	if i < 0 {
		i = s.room()
		s.all[i] = slot[T]{start: start}
	}
	s.last = i
	s.all[i].used = s.used
	return &s.all[i].value
}

// room is the index of a slot that can be overwritten.
func (s *slots[T]) room() int {
	if len(s.all) < s.limit {
		s.all = append(s.all, slot[T]{})
		return len(s.all) - 1
	}
	least := 0
	for i := range s.all {
		if s.all[i].used < s.all[least].used {
			least = i
		}
	}
	if s.retire != nil {
		s.retire(s.all[least].start, &s.all[least].value)
	}
	return least
}

// each walks the slots that start in [from, to), oldest first.
func (s *slots[T]) each(from, to int64, f func(start int64, value *T)) {
	var in []int
	for i := range s.all {
		if s.all[i].start >= from && s.all[i].start < to {
			in = append(in, i)
		}
	}
	slices.SortFunc(in, func(a, b int) int { return cmp.Compare(s.all[a].start, s.all[b].start) })
	for _, i := range in {
		f(s.all[i].start, &s.all[i].value)
	}
}
