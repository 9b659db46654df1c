package plugin

import (
	"encoding/json"
	"io"

	"sigs.k8s.io/yaml"
)

// The values of --output.
const (
	outputTable = "table"
	outputText  = "text"
	outputJSON  = "json"
	outputYAML  = "yaml"
	outputName  = "name"
)

// printEncoded prints a value as JSON or YAML.
func printEncoded(out io.Writer, format string, v any) error {
	if format == outputYAML {
		raw, err := yaml.Marshal(v)
		if err != nil {
			return err
		}
		_, err = out.Write(raw)
		return err
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}
