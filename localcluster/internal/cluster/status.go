package cluster

import (
	"context"
	"time"

	"github.com/yardmaster/yardmaster/localcluster/internal/build"
	"github.com/yardmaster/yardmaster/localcluster/internal/kubeapi"
	"github.com/yardmaster/yardmaster/localcluster/internal/process"
)

// Status is the state of a cluster as observed from outside.
type Status struct {
	Mode       Mode
	Server     string
	Since      time.Time
	Up         bool // the supervisor runs, the API server is ready, and so is every node
	API        error
	Nodes      []kubeapi.Node
	Components []Component
}

// Component is the running processes of one component.
type Component struct {
	Name      string
	Versions  string
	Processes int
	Memory    int64 // resident, in bytes
}

// Status returns nil if there is no such cluster, running or not.
func (c *Cluster) Status(ctx context.Context) (*Status, error) {
	r, err := c.read()
	if err != nil || r == nil {
		return nil, err
	}
	processes, err := process.Find(c.Dir)
	if err != nil {
		return nil, err
	}
	api, err := c.api(r)
	if err != nil {
		return nil, err
	}
	s := &Status{Mode: r.Mode, Server: r.server(), Since: r.Created, Components: r.components()}
	supervised := false
	for _, p := range processes {
		supervised = supervised || p.Component == supervisorName
		s.count(p)
	}
	if s.API = api.Ready(ctx); s.API == nil {
		s.Nodes, s.API = api.Nodes(ctx)
	}
	s.Up = supervised && s.API == nil && allReady(s.Nodes)
	return s, nil
}

// count adds a process to its component.
func (s *Status) count(p process.Process) {
	for i := range s.Components {
		if s.Components[i].Name == p.Component {
			s.Components[i].Processes++
			s.Components[i].Memory += p.Memory
		}
	}
}

func allReady(nodes []kubeapi.Node) bool {
	for _, node := range nodes {
		if !node.Ready {
			return false
		}
	}
	return len(nodes) > 0
}

// components lists what should run.
func (r *record) components() []Component {
	components := []Component{
		{Name: supervisorName},
		{Name: controlPlaneName, Versions: "etcd v3.6.8, kube-apiserver, kube-controller-manager, kube-scheduler " + build.Version},
	}
	if r.Mode == ControlPlane {
		return append(components, Component{Name: "kwok", Versions: build.Kwok.Version})
	}
	return append(components,
		Component{Name: networkPoliciesName, Versions: "kube-network-policies " + build.NetworkPolicies.Version},
		Component{Name: "containerd", Versions: build.Containerd.Version + ", runc " + build.Runc.Version},
		Component{Name: "kubelet", Versions: build.Version},
		Component{Name: "kube-proxy", Versions: build.Version},
		Component{Name: "coredns", Versions: build.CoreDNS.Version},
	)
}

func (r *record) kubernetes() string { return r.Programs.Path(build.Kubernetes, "kubernetes") }
