// Command sbom prints the software bill of materials of a Go program in the format CycloneDX: the modules that the
// linker recorded in it.
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: sbom <program>")
		os.Exit(2)
	}
	if err := write(os.Stdout, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// document is a CycloneDX document. It has no serial number and no time, so that it depends on the program only.
type document struct {
	Format     string      `json:"bomFormat"`
	Version    string      `json:"specVersion"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl,omitempty"`
}

func write(out io.Writer, path string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(describe(filepath.Base(path), info))
}

func describe(name string, info *debug.BuildInfo) document {
	d := document{
		Format: "CycloneDX", Version: "1.6",
		Metadata:   metadata{component{Type: "application", Name: name, Version: info.Main.Version, PURL: packageURL(&info.Main)}},
		Components: []component{{Type: "platform", Name: "go", Version: info.GoVersion}},
	}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		d.Components = append(d.Components, component{Type: "library", Name: module.Path, Version: module.Version, PURL: packageURL(module)})
	}
	return d
}

// packageURL returns the package URL of a module, by which vulnerabilities are found.
func packageURL(module *debug.Module) string {
	return "pkg:golang/" + module.Path + "@" + module.Version
}
