package plugin

import (
	"encoding/json"
	"io"

	"sigs.k8s.io/yaml"
)

// What --output can be.
const (
	outputTable = "table"
	outputJSON  = "json"
	outputYAML  = "yaml"
	outputName  = "name"
)

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
