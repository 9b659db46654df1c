package main

import (
	"bytes"
	"encoding/json"
	"os"
	"runtime/debug"
	"slices"
	"testing"
)

func TestABillOfMaterialsNamesTheModulesThatAreLinked(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Path: "example.com/program", Version: "v1.0.0"}}
	info.Deps = []*debug.Module{
		{Path: "example.com/library", Version: "v2.0.0"},
		{Path: "example.com/original", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/fork", Version: "v1.1.0"}},
	}
	d := describe("program", info)
	var got []string
	for _, one := range append(d.Components, d.Metadata.Component) {
		got = append(got, one.Type+" "+one.Name+" "+one.Version+" "+one.PURL)
	}
	want := []string{
		"platform go go1.26.8 ",
		"library example.com/library v2.0.0 pkg:golang/example.com/library@v2.0.0",
		"library example.com/fork v1.1.0 pkg:golang/example.com/fork@v1.1.0",
		"application program v1.0.0 pkg:golang/example.com/program@v1.0.0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestABillOfMaterialsIsReadFromAProgram(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := write(&out, program); err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(out.Bytes(), &d); err != nil || d.Format != "CycloneDX" {
		t.Errorf("%v:\n%s", err, out.String())
	}
}
