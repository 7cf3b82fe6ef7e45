// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

// The programs that all tests here run, and how long they wait for them.

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelcol-serving/otelcol-serving/test/program"
)

const (
	// patience is how long anything may take on a busy machine; passing tests do not wait for it.
	patience = 60 * time.Second
	poll     = 50 * time.Millisecond
)

// tool is the program that run.sh put into the variable. Only CI has them all for sure.
func tool(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not set: run test/e2e/run.sh", variable)
		}
		t.Skipf("%s is not set: test/e2e/run.sh says why", variable)
	}
	return path
}

// built is a program of this repository.
func built(t *testing.T, variable, path string) string {
	t.Helper()
	if set := os.Getenv(variable); set != "" {
		path = set
	}
	_, err := os.Stat(path)
	require.NoError(t, err, "run test/e2e/run.sh, which builds it")
	return path
}

// process is a program that runs until its test is over.
type process struct{ *program.Process }

func start(t *testing.T, env []string, path string, args ...string) *process {
	t.Helper()
	return &process{program.StartFor(t.Context(), t, env, path, args...)}
}

// run runs a program to its end and gives back what it printed.
func run(t *testing.T, env []string, path string, args ...string) (string, error) {
	t.Helper()
	p := start(t, env, path, args...)
	err := p.wait(t)
	return p.Output(), err
}

// wait says how the program ended.
func (p *process) wait(t *testing.T) error {
	t.Helper()
	err := p.Wait(patience)
	require.NotErrorIs(t, err, program.ErrPatience)
	return err
}

// terminate asks the program to end and waits until it has, well.
func (p *process) terminate(t *testing.T) {
	t.Helper()
	require.NoError(t, p.Terminate(patience))
}

// awaitOK waits until url answers with status 200.
func (p *process) awaitOK(t *testing.T, url string) {
	t.Helper()
	require.NoError(t, p.AwaitOK(t.Context(), url, patience))
}
