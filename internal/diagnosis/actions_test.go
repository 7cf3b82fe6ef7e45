// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCatalogue(t *testing.T) {
	for _, e := range catalogue {
		assert.Regexp(t, `^--[a-z][a-z-]+$`, e.flag)
		assert.NotEmpty(t, e.does)
		assert.True(t, e.sourceV0 != "" || e.sourceV1 != "", "%s was checked nowhere", e.flag)
		assert.Equal(t, e.versionsV0 != "", e.sourceV0 != "", e.flag)
		assert.Equal(t, e.versionsV1 != "", e.sourceV1 != "", e.flag)
		for _, source := range []string{e.sourceV0, e.sourceV1} {
			assert.Regexp(t, `^(https://(github\.com/vllm-project/vllm|docs\.vllm\.ai)/.+)?$`, source)
		}
	}
}

// TestEveryFlagIsCatalogued reads the rules' own source: no string of it names a flag that is not in the catalogue.
func TestEveryFlagIsCatalogued(t *testing.T) {
	flag := regexp.MustCompile(`--[a-z][a-z-]+`)
	named := 0
	for _, name := range []string{"rules.go", "evaluate.go", "terms.go", "tracker.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				for _, f := range flag.FindAllString(lit.Value, -1) {
					named++
					assert.NotNil(t, lookUp(f), "%s was not checked", f)
				}
			}
			return true
		})
	}
	assert.Greater(t, named, 10)
}

// TestOtherEnginesGetWords: what was checked for vLLM is not typed into another engine.
func TestOtherEnginesGetWords(t *testing.T) {
	c := NewDefaultConfig()
	rng := rand.New(rand.NewPCG(3, 3)) //nolint:gosec // a test
	settings, others := 0, 0
	for range 3000 {
		in := randomInput(rng)
		d := Evaluate(&c, in)
		for _, f := range append([]Finding{d.Finding}, d.Also...) {
			for _, a := range f.Actions {
				if strings.HasPrefix(a.Setting, "-") {
					settings++
					e := lookUp(strings.Fields(a.Setting)[0])
					require.NotNil(t, e, a.Setting)
					switch in.Generation {
					case "v0":
						require.Equal(t, e.sourceV0, a.Source)
						require.Equal(t, e.versionsV0, a.Versions)
					case "v1":
						require.Equal(t, e.sourceV1, a.Source)
						require.Equal(t, e.versionsV1, a.Versions)
					default:
						t.Fatalf("%s for an unknown generation", a.Setting)
					}
				}
				if in.Kind != "vllm" {
					others++
					for _, text := range []string{a.Text, a.Why} {
						require.NotContains(t, text, "--")
						require.NotContains(t, text, "Upgrade to vLLM")
					}
				}
			}
		}
	}
	assert.Positive(t, settings)
	assert.Positive(t, others)
}

func TestFormats(t *testing.T) {
	for want, got := range map[string]string{
		"41 %": percent(.41), "100 %": percent(1), "0 %": percent(0), "under 1 %": percent(.002), "120 %": percent(1.2), "an unknown share": percent(math.NaN()),
		"4.9 ms": seconds(.0049), "1.7 s": seconds(1.7), "12 s": seconds(12), "0.5 ms": seconds(.0005), "120 s": seconds(120.2),
		"0.16": significant(.16), "0": significant(0), "unknown": significant(math.NaN()), "1234": significant(1234.4), "-3.5": significant(-3.5),
		"0.667": number(2. / 3), "2": number(2),
	} {
		assert.Equal(t, want, got)
	}
}
