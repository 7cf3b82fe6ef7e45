// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package rig

// A load balancer of TCP connections, in turn over all that are up.

import (
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/otelcol-serving/otelcol-serving/test/program"
)

// Balancer passes each connection on to the next target that takes it.
type Balancer struct {
	Address string
	targets []string
	next    atomic.Uint64
	l       net.Listener
	passed  []atomic.Int64
	conns   sync.WaitGroup
}

// NewBalancer starts one.
func NewBalancer(targets ...string) (*Balancer, error) {
	b := &Balancer{Address: program.Address(program.FreePort()), targets: targets, passed: make([]atomic.Int64, len(targets))}
	var err error
	if b.l, err = net.Listen("tcp", b.Address); err != nil {
		return nil, err
	}
	b.conns.Go(func() {
		for {
			conn, err := b.l.Accept()
			if err != nil {
				return
			}
			b.conns.Go(func() { b.pass(conn) })
		}
	})
	return b, nil
}

func (b *Balancer) pass(from net.Conn) {
	defer from.Close()
	for range b.targets {
		i := int(b.next.Add(1) % uint64(len(b.targets)))
		to, err := net.Dial("tcp", b.targets[i])
		if err != nil {
			continue
		}
		defer to.Close()
		b.passed[i].Add(1)
		done := make(chan struct{}, 2)
		one := func(dst, src net.Conn) {
			_, _ = io.Copy(dst, src) // an end is an end
			done <- struct{}{}
		}
		go one(to, from)
		go one(from, to)
		<-done
		return
	}
}

// Passed is how many connections each target got.
func (b *Balancer) Passed() []int64 {
	counts := make([]int64, len(b.passed))
	for i := range b.passed {
		counts[i] = b.passed[i].Load()
	}
	return counts
}

// Close takes no more connections and waits until those there are have ended.
func (b *Balancer) Close() {
	_ = b.l.Close()
	b.conns.Wait()
}
