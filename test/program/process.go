// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package program

// One program: started, asked to end, killed, and what it printed.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a running program.
type Process struct {
	cmd  *exec.Cmd
	out  output
	done chan struct{} // closed when it has ended
	err  error         // how, when done
}

// killAfter is how long a process may take to end after its context is over, before it is killed.
const killAfter = 20 * time.Second

// Start runs a program until it ends by itself, is told to, or ctx is over, which asks it to end. env is added to this
// program's own. Programs that wrap another, such as unshare, have to replace themselves by it.
func Start(ctx context.Context, env []string, path string, args ...string) (*Process, error) {
	p := &Process{done: make(chan struct{})}
	p.cmd = exec.CommandContext(ctx, path, args...)
	// What a developer has set for SDKs is not for these.
	p.cmd.Env = slices.DeleteFunc(append(os.Environ(), env...), func(v string) bool { return strings.HasPrefix(v, "OTEL_") })
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.Cancel = func() error { return p.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = killAfter
	portsMu.Lock() // see FreePort
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

// ErrPatience is the error of what took too long.
var ErrPatience = errors.New("waited too long")

// Wait waits until the process has ended, and says how; ErrPatience if it has not within patience.
func (p *Process) Wait(patience time.Duration) error {
	select {
	case <-p.done:
		return p.err
	case <-time.After(patience):
		return ErrPatience
	}
}

// Terminate asks the process to end, as service managers do, and waits until it has. One that takes longer than patience is
// killed, which is an error.
func (p *Process) Terminate(patience time.Duration) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	err := p.Wait(patience)
	if errors.Is(err, ErrPatience) {
		p.Kill()
	}
	if err != nil {
		return fmt.Errorf("did not end well after SIGTERM: %w\n%s", err, p.Output())
	}
	return nil
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

// AwaitReady asks again and again until ready says nil. It is an error if the process ends before, or patience does.
func (p *Process) AwaitReady(patience time.Duration, ready func() error) error {
	var last error
	err := Await(patience, func() bool {
		last = ready()
		return last == nil || p.Ended()
	})
	switch {
	case p.Ended():
		return fmt.Errorf("ended before it was ready: %w\n%s", p.err, p.Output())
	case err != nil:
		return fmt.Errorf("is not ready: %w: %w\n%s", err, last, p.Output())
	}
	return nil
}

// Await looks again and again until ok; ErrPatience if that takes longer than patience.
func Await(patience time.Duration, ok func() bool) error {
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return ErrPatience
		}
	}
	return nil
}

// Output is what the process printed, or the end of it.
func (p *Process) Output() string {
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	return p.out.buf.String()
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
