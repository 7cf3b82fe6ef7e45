// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package rig

// Processes and ports.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Binary is the program under test: what the environment variable BINARY names, or what `make build` made.
func Binary() (string, error) {
	path := os.Getenv("BINARY")
	if path == "" {
		path = filepath.Join("dist", "otelcol-serving")
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("no collector to test; run `make build`, or set BINARY: %w", err)
	}
	return filepath.Abs(path)
}

// Process is a running program.
type Process struct {
	cmd  *exec.Cmd
	out  output
	done chan struct{} // closed when it has ended
	err  error         // how, when done
}

// output keeps the end of what a program prints.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const maxOutput = 1 << 20

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.buf.Len() > maxOutput {
		o.buf.Next(maxOutput / 2)
	}
	return o.buf.Write(p)
}

// Start runs a program until it ends by itself, is told to, or ctx is over. Programs that wrap it, such as
// unshare, have to replace themselves by it.
func Start(ctx context.Context, env []string, path string, args ...string) (*Process, error) {
	p := &Process{done: make(chan struct{})}
	p.cmd = exec.CommandContext(ctx, path, args...)
	// What a developer has set for SDKs is not for these.
	p.cmd.Env = slices.DeleteFunc(append(os.Environ(), env...), func(v string) bool { return strings.HasPrefix(v, "OTEL_") })
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	// See FreePort.
	portsMu.Lock()
	err := p.cmd.Start()
	portsMu.Unlock()
	if err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Signal sends a signal.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the process as a power switch would, and waits until it is gone. It may have ended before.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Terminate asks the process to end, as service managers do, and waits until it has; longer than patience is an error.
func (p *Process) Terminate(patience time.Duration) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		if p.err != nil {
			return fmt.Errorf("did not end well: %w\n%s", p.err, p.Output())
		}
		return nil
	case <-time.After(patience):
		p.Kill()
		return fmt.Errorf("did not end within %v of SIGTERM\n%s", patience, p.Output())
	}
}

// Ended reports whether the process is gone.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Output is what the process printed last.
func (p *Process) Output() string {
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	return p.out.buf.String()
}

// AwaitPort waits until the process takes connections on address.
func (p *Process) AwaitPort(address string, patience time.Duration) error {
	err := Await(patience, func() bool {
		if p.Ended() {
			return true
		}
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
	switch {
	case p.Ended():
		return fmt.Errorf("ended before it was ready: %w\n%s", p.err, p.Output())
	case err != nil:
		return fmt.Errorf("is not ready: %w\n%s", err, p.Output())
	}
	return nil
}

var errPatience = errors.New("waited too long")

// Await looks again and again until ok or out of patience.
func Await(patience time.Duration, ok func() bool) error {
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return errPatience
		}
	}
	return nil
}

var (
	portsMu sync.Mutex
	ports   = map[int]bool{}
)

// FreePort is an address that nobody listens on. It lies below the range from which systems take the ports of
// outgoing connections, one of which could otherwise be there first. No program may be started meanwhile: until it
// runs it has all files of this one, the listener too, and the port would still be taken when this function returns.
func FreePort() string {
	portsMu.Lock()
	defer portsMu.Unlock()
	for {
		port := 20000 + rand.IntN(10000)
		if ports[port] {
			continue
		}
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		l, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		_ = l.Close()
		ports[port] = true
		return address
	}
}
