package client

import (
	"encoding/json"
	"fmt"
	"os"

	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/connection"
)

// BrokerConfig defines how to connect to the broker. It has the fields of broker in the configuration of a worker.
type BrokerConfig = connection.Config

// SentinelConfig is a part of a BrokerConfig.
type SentinelConfig = connection.SentinelConfig

// TLSConfig is a part of a BrokerConfig.
type TLSConfig = connection.TLSConfig

// The environment variables of a producer.
const (
	envConfigFile = "YARDMASTER_CONFIG_FILE"
	envBrokerURL  = "YARDMASTER_BROKER_URL"
)

// FromEnvironment returns options with the field broker of the configuration of a worker in the file that YARDMASTER_CONFIG_FILE names, or
// else with the URL in YARDMASTER_BROKER_URL. So a handler in a WorkerPool reaches the broker of its own queues.
func FromEnvironment() (Options, error) { return parseEnvironment(os.Getenv) }

func parseEnvironment(getenv func(string) string) (Options, error) {
	path := getenv(envConfigFile)
	if path == "" {
		return Options{Broker: BrokerConfig{URL: getenv(envBrokerURL)}}, nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return Options{}, err
	}
	var file struct {
		Broker json.RawMessage `json:"broker"`
	}
	if err := yaml.Unmarshal(raw, &file); err != nil {
		return Options{}, fmt.Errorf("%s: %w", path, err)
	}
	var config BrokerConfig
	if len(file.Broker) > 0 {
		if err := yaml.UnmarshalStrict(file.Broker, &config); err != nil {
			return Options{}, fmt.Errorf("%s: broker: %w", path, err)
		}
	}
	if config == (BrokerConfig{}) {
		config.URL = getenv(envBrokerURL)
	}
	return Options{Broker: config}, nil
}
