// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package web

// The files of the page, under names that change with their content.

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"path"
	"strings"
)

//go:embed static/app.css static/app.js static/icon.svg third_party/uplot/uPlot.iife.min.js third_party/uplot/uPlot.min.css third_party/idiomorph/idiomorph.min.js
var files embed.FS

type asset struct {
	contentType string
	content     []byte
}

// assets by the name in their address.
type assets map[string]asset

var contentTypes = map[string]string{
	".css": "text/css; charset=utf-8",
	".js":  "text/javascript; charset=utf-8",
	".svg": "image/svg+xml",
}

func newAssets() assets {
	a := assets{}
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		ext := path.Ext(name)
		hashed := strings.TrimSuffix(path.Base(name), ext) + "." + hex.EncodeToString(sum[:6]) + ext
		a[hashed] = asset{contentTypes[ext], content}
		return nil
	})
	if err != nil { // the files are in the program
		panic(err)
	}
	return a
}

// path is the address of the file that is called name before hashing. Relative, so that a proxy may put the page anywhere.
func (a assets) path(name string) string {
	ext := path.Ext(name)
	for hashed := range a {
		base := strings.TrimSuffix(hashed, ext)
		if strings.HasSuffix(hashed, ext) && strings.TrimSuffix(base, path.Ext(base)) == strings.TrimSuffix(name, ext) {
			return "static/" + hashed
		}
	}
	panic("no file " + name) // named in a template
}
