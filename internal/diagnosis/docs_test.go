// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package diagnosis

// docs/diagnosis.md says what the code does, or this fails.

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const document = "../../docs/diagnosis.md"

// conditionLines are the lines under a verdict's heading that say when it holds.
func conditionLines(r *rule) string {
	var lines []string
	for i, when := range r.when {
		text := "**Holds when** "
		if i > 0 {
			text = "**or when** "
		}
		if r.withoutRequests && i == 0 {
			text = "**Holds**, with any number of requests, **when** "
		}
		lines = append(lines, text+when.String()+".")
	}
	return strings.Join(lines, "\n\n")
}

func TestDocumentConditions(t *testing.T) {
	text := readDocument(t)
	last := 0
	for i := range rules {
		r := &rules[i]
		heading := fmt.Sprintf("### `%s`: %s\n\n%s\n", r.verdict, strings.ToLower(r.title[:1])+r.title[1:], conditionLines(r))
		at := strings.Index(text, heading)
		if assert.GreaterOrEqual(t, at, 0, "the page should have:\n%s", heading) {
			assert.Greater(t, at, last, "the verdicts should come in the order in which they are looked for")
			last = at
		}
	}
}

func TestDocumentThresholds(t *testing.T) {
	text := readDocument(t)
	v := reflect.ValueOf(NewDefaultConfig())
	rows := 0
	for i := range v.NumField() {
		key := v.Type().Field(i).Tag.Get("mapstructure")
		if key == "" {
			continue
		}
		rows++
		value := v.Field(i).Interface()
		assert.Regexp(t, regexp.MustCompile(`(?m)^\| `+"`"+key+"`"+` \| `+regexp.QuoteMeta(strings.TrimSuffix(fmt.Sprint(value), "0s"))+` \| .{20,} \|$`), text)
	}
	assert.Equal(t, rows, len(regexp.MustCompile("(?m)^\\| `[a-z_]+` \\| [0-9]").FindAllString(text, -1)), "the page has thresholds that do not exist")
}

func TestDocumentFlags(t *testing.T) {
	text := readDocument(t)
	for _, e := range catalogue {
		for _, x := range [][2]string{{e.versionsV0, e.sourceV0}, {e.versionsV1, e.sourceV1}} {
			if x[1] != "" {
				assert.Contains(t, text, flagRow(e, x[0], x[1]))
			}
		}
	}
}

func flagRow(e flagged, versions, source string) string {
	return fmt.Sprintf("| `%s` | %s | %s | <%s> |\n", e.flag, e.does, versions, source)
}

func readDocument(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(document)
	require.NoError(t, err)
	return string(b)
}
