package component

import (
	"encoding/json"
	"fmt"
	"os"
)

// WriteJSON writes a configuration file. Kubelet and kube-proxy read JSON as
// the YAML that it is.
func WriteJSON(path string, config any) error {
	content, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return fmt.Errorf("rendering %s: %w", path, err)
	}
	return os.WriteFile(path, append(content, '\n'), 0o600)
}
