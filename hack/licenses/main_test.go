package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

const mit = `Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
`

const gpl = `This program is free software: you can redistribute it and/or modify it under the terms of the GNU General Public
License as published by the Free Software Foundation, either version 3 of the License, or (at your option) any later
version.
`

func TestLicensesAreAllowedOrRejected(t *testing.T) {
	for title, test := range map[string]struct {
		text    string
		allowed bool
	}{
		"MIT":                {mit, true},
		"AGPL":               {strings.ReplaceAll(gpl, "GNU General", "GNU Affero General"), false},
		"GPL beside MIT":     {mit + gpl, false},
		"an unknown license": {"All rights reserved.", false},
		"an empty file":      {"", false},
	} {
		t.Run(title, func(t *testing.T) {
			licenses, err := classify([]byte(test.text))
			require.True(t, (err == nil) == test.allowed, "licenses %v, error %v", licenses, err)
		})
	}
}

func TestAPackageWithItsOwnLicenseDoesNotHaveThatOfTheModule(t *testing.T) {
	root := t.TempDir()
	own := filepath.Join(root, "vendored", "package")
	require.NoError(t, os.MkdirAll(own, 0o755))
	for file, text := range map[string]string{filepath.Join(root, "LICENSE"): mit, filepath.Join(root, "vendored", "COPYING"): gpl} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	if licenses, err := licensesOf(root, root); err != nil || !licenses["MIT"] {
		t.Errorf("licenses %v, error %v", licenses, err)
	}
	if licenses, err := licensesOf(root, own); err == nil {
		t.Errorf("licenses %v are allowed", licenses)
	}
}
