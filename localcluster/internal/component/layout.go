// Package component renders the command lines and configuration files of a
// cluster's components. It is pure except for Write, and starts nothing.
package component

import "path/filepath"

// Addresses inside a node. They are invisible outside its network namespace.
const (
	NodeName       = "localcluster"
	NodeAddress    = "10.211.0.2"
	NodeSubnet     = NodeAddress + "/24"
	PodSubnet      = "10.244.0.0/16"
	ServiceSubnet  = "10.96.0.0/16"
	ServiceAddress = "10.96.0.1" // of the API server, the first in ServiceSubnet
	NodeAPIServer  = "127.0.0.1:6443"
)

// VolumeProvisioner is the provisioner's name in StorageClasses.
const VolumeProvisioner = "localcluster.dev/directory"

// PauseImage is the image of the container that holds a Pod's namespaces.
const PauseImage = "docker.io/localcluster/pause:1"

// Layout locates the files of one cluster. Root differs between the host
// and the inside of a node, where it is NodeRoot.
type Layout struct {
	Root string
}

// Where a node sees the cluster's directory and the programs it was built from.
const (
	NodeRoot     = "/run/localcluster/cluster"
	NodePrograms = "/run/localcluster/programs"
)

// File is a path below the cluster's directory.
func (l Layout) File(elements ...string) string {
	return filepath.Join(append([]string{l.Root}, elements...)...)
}

// PKI is a certificate, key or kubeconfig.
func (l Layout) PKI(name string) string { return l.File("pki", name) }

// Logs is the directory of the components' output.
func (l Layout) Logs() string { return l.File("logs") }

// Volumes is the directory in which PersistentVolumes are made.
func (l Layout) Volumes() string { return l.File("volumes") }
