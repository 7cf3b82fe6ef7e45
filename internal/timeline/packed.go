// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

// A record between windows: the same in 40 bytes instead of 48.

import "math"

// packed has in its words
//
//	0, 1     when it ended, Unix ns (62 bits), hasSteps, stepClock
//	2, 3     its running time, ns (47 bits: more than maxRun), shift (5 bits), high bits of the tokens
//	4        low bits of the tokens: in, out; all bits of either set where it is unknown
//	5 to 9   prefill, queue, forward, execute, scheduler, as float32; unset where unknown
type packed [10]uint32

const (
	unset      = ^uint32(0) // of a float32 it is not a number, which none of a record is
	lengthBits = 47
	shiftBits  = 5
)

func (r *record) pack(p *packed) {
	end := uint64(r.re) << 2 //nolint:gosec // from 1 to 2^62 - 1
	if r.has(hasSteps) {
		end |= 1
	}
	if r.has(stepClock) {
		end |= 2
	}
	in, out := uint64(1<<inBits-1), uint64(1<<outBits-1)
	if r.has(hasIn) {
		in = uint64(r.in)
	}
	if r.has(hasOut) {
		out = uint64(r.out)
	}
	tokens := in<<outBits | out
	run := uint64(r.re-r.rs) | uint64(r.shift)<<lengthBits | tokens>>32<<(lengthBits+shiftBits) //nolint:gosec // from 0 to 2^47 - 1
	p[0], p[1] = uint32(end), uint32(end>>32)                                                   //nolint:gosec // in two parts
	p[2], p[3] = uint32(run), uint32(run>>32)                                                   //nolint:gosec // in two parts
	p[4] = uint32(tokens)                                                                       //nolint:gosec // the rest is in run
	p[5], p[6], p[7], p[8], p[9] = unset, unset, unset, unset, unset
	if r.has(hasFirst) {
		p[5] = math.Float32bits(r.prefill)
	}
	if r.has(hasQueue) {
		p[6] = math.Float32bits(r.queue)
	}
	if r.has(hasForward) {
		p[7] = math.Float32bits(r.forward)
	}
	if r.has(hasExecute) {
		p[8] = math.Float32bits(r.execute)
	}
	if r.has(hasScheduler) {
		p[9] = math.Float32bits(r.scheduler)
	}
}

// re is the end, Unix ns.
func (p *packed) re() int64 { return int64((uint64(p[0]) | uint64(p[1])<<32) >> 2) } //nolint:gosec // 62 bits

// rs is the first schedule, Unix ns.
func (p *packed) rs() int64 {
	return p.re() - int64((uint64(p[2])|uint64(p[3])<<32)&(1<<lengthBits-1)) //nolint:gosec // 47 bits
}

// arrival is when it arrived, Unix ns.
func (p *packed) arrival() int64 {
	if p[6] == unset {
		return p.rs()
	}
	return p.rs() - int64(float64(math.Float32frombits(p[6]))*sec)
}

func (p *packed) unpack(r *record) {
	*r = record{re: p.re(), rs: p.rs()}
	if p[0]&1 != 0 {
		r.flags |= hasSteps
	}
	if p[0]&2 != 0 {
		r.flags |= stepClock
	}
	const words = 32
	r.shift = uint8(p[3] >> (lengthBits - words) & (1<<shiftBits - 1)) //nolint:gosec // 5 bits
	tokens := uint64(p[4]) | uint64(p[3]>>(lengthBits-words+shiftBits))<<words
	if in := uint32(tokens >> outBits); in != 1<<inBits-1 { //nolint:gosec // 23 bits
		r.in = in
		r.flags |= hasIn
	}
	if out := uint32(tokens & (1<<outBits - 1)); out != 1<<outBits-1 { //nolint:gosec // 21 bits
		r.out = out
		r.flags |= hasOut
	}
	if p[5] != unset {
		r.prefill = math.Float32frombits(p[5])
		r.flags |= hasFirst
	}
	if p[6] != unset {
		r.queue = math.Float32frombits(p[6])
		r.flags |= hasQueue
	}
	if p[7] != unset {
		r.forward = math.Float32frombits(p[7])
		r.flags |= hasForward
	}
	if p[8] != unset {
		r.execute = math.Float32frombits(p[8])
		r.flags |= hasExecute
	}
	if p[9] != unset {
		r.scheduler = math.Float32frombits(p[9])
		r.flags |= hasScheduler
	}
}
