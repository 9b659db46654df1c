// Command chart writes the templates of the Helm chart from the manifests in config/, so that both ways to
// install cannot differ. Chart.yaml, values.yaml and the helpers are written by hand.
//
// Each manifest becomes a template: its namespace is that of the release, and values replace the fields
// that the kustomize components patch.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/yardmaster/yardmaster/hack/controllers"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: chart <config directory> <templates directory>")
		os.Exit(2)
	}
	if err := generate(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// generatedPrefix is that of the names of generated templates, so that others in the directory are kept.
const generatedPrefix = "zz_generated."

func generate(config, output string) error {
	outdated, err := filepath.Glob(filepath.Join(output, generatedPrefix+"*"))
	if err != nil {
		return err
	}
	for _, path := range outdated {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	watching, err := controllers.Watching(config)
	if err != nil {
		return err
	}
	all := slices.Concat(templates, watchedTemplates(watching))
	crds, err := filepath.Glob(filepath.Join(config, "crd", "bases", "*.yaml"))
	if err != nil {
		return err
	}
	if len(crds) == 0 {
		return fmt.Errorf("no CustomResourceDefinition in %s", config)
	}
	for _, path := range crds {
		all = append(all, newCRDTemplate(config, path))
	}
	for _, t := range all {
		text, err := t.render(config)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		path := filepath.Join(output, generatedPrefix+t.name+".yaml")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // a tracked file, readable like the others
			return err
		}
	}
	return nil
}

// newCRDTemplate returns the template of a CustomResourceDefinition.
func newCRDTemplate(config, path string) template {
	source, _ := filepath.Rel(config, path)
	name := filepath.Base(path[:len(path)-len(filepath.Ext(path))])
	return template{name: "crd." + name, isShared: true, sources: []string{source}}
}
