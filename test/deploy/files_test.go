// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package deploy

// deploy/ as read by the tests: dashboards, rules, and the runbook.

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

var root = filepath.Join("..", "..")

func read(t *testing.T, elements ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.Join(elements...)))
	require.NoError(t, err)
	return string(text)
}

// dashboard is what the tests look at.
type dashboard struct {
	file, text string

	UID, Title, Description string
	SchemaVersion           int
	Time                    struct{ From, To string }
	Templating              struct {
		List []struct {
			Name, Label, Description, Type string
			Query                          any
			Current                        map[string]any
		}
	}
	Panels []*panel
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               *struct{ Type, UID string }
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct {
		Defaults struct{ Unit, NoValue string }
	}
	Targets []struct {
		RefID, Expr, LegendFormat string
		Datasource                *struct{ Type, UID string }
	}
}

func readDashboards(t *testing.T) []*dashboard {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "deploy", "grafana", "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var all []*dashboard
	for _, file := range files {
		d := &dashboard{file: filepath.Base(file), text: read(t, "deploy", "grafana", filepath.Base(file))}
		require.NoError(t, json.Unmarshal([]byte(d.text), d), file)
		all = append(all, d)
	}
	return all
}

type rule struct {
	group string

	Record, Alert, Expr string
	For                 string
	Labels, Annotations map[string]string
}

func (r *rule) name() string { return r.Record + r.Alert }

func readRules(t *testing.T) []*rule {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []*rule
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "deploy", "prometheus", "rules.yaml")), &file))
	var all []*rule
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			r.group = g.Name
			all = append(all, r)
		}
	}
	require.NotEmpty(t, all)
	return all
}

// variables is what the tests put in for Grafana's variables.
type variables map[string]string

func (v variables) in(expr string) string {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		expr = strings.ReplaceAll(expr, "$"+name, v[name])
	}
	return expr
}

// anything selects all series, as the choice All does.
var anything = variables{"__rate_interval": "20s", "job": ".*", "instance": ".*", "model": ".*"}

// selectors are the series that a query asks for, without ranges and offsets.
func selectors(t *testing.T, query string) []*parser.VectorSelector {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	require.NoError(t, err, query)
	var all []*parser.VectorSelector
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			all = append(all, &parser.VectorSelector{Name: s.Name, LabelMatchers: s.LabelMatchers})
		}
		return nil
	})
	return all
}

// runbookQueries are the queries in the runbook: one a paragraph of a block of PromQL.
func runbookQueries(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, block := range regexp.MustCompile("(?s)```promql\n(.*?)```").FindAllStringSubmatch(read(t, "docs", "runbook.md"), -1) {
		for _, query := range strings.Split(block[1], "\n\n") {
			if strings.TrimSpace(query) != "" {
				all = append(all, query)
			}
		}
	}
	return all
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := model.ParseDuration(s)
	require.NoError(t, err)
	return time.Duration(d)
}

// matched are the labels and values that a selector names, but for the name of the metric.
func matched(s *parser.VectorSelector) []*labels.Matcher {
	return slices.DeleteFunc(slices.Clone(s.LabelMatchers), func(m *labels.Matcher) bool { return m.Name == model.MetricNameLabel })
}
