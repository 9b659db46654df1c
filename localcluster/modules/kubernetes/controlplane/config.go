// Package controlplane runs etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler and a volume provisioner in one process, which is ready sooner
// and needs less memory than five processes. Certificates, addresses and arguments
// come from the file that localcluster writes.
package controlplane

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Config is the file named on the command line. Its other half is
// internal/component.ControlPlane in the localcluster module; an unknown field
// is an error, so that the two cannot diverge unnoticed.
type Config struct {
	Etcd              Etcd
	APIServer         []string // arguments, as on the command line of each program
	ControllerManager []string
	Scheduler         []string
	Volumes           Volumes

	// Kubeconfig is used by the provisioner, and to check whether the API server
	// is ready.
	Kubeconfig string

	// JobBatchPeriod is how long the Job controller waits after a Pod's change
	// before it syncs the Job. Upstream has no flag for it.
	JobBatchPeriod time.Duration
}

// Etcd configures where etcd stores its data and listens.
type Etcd struct {
	Dir       string
	ClientURL string
	PeerURL   string
}

// Volumes configures the provisioner's name and the directory of its volumes.
type Volumes struct {
	Provisioner string
	Dir         string
}

func readConfig(path string) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	decoder := json.NewDecoder(f)
	decoder.DisallowUnknownFields()
	config := &Config{}
	if err := decoder.Decode(config); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return config, nil
}
