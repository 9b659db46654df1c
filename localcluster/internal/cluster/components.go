package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"github.com/yardmaster/yardmaster/localcluster/internal/build"
	"github.com/yardmaster/yardmaster/localcluster/internal/component"
	"github.com/yardmaster/yardmaster/localcluster/internal/kubeapi"
	"github.com/yardmaster/yardmaster/localcluster/internal/supervisor"
)

// controlPlaneName is the component that is the whole control plane in one process.
const controlPlaneName = "control-plane"

// Components that others wait for.
const (
	containerdName      = "containerd"
	networkPoliciesName = "network-policies"
)

// controlPlaneComponents are those of the control-plane mode.
func (c *Cluster) controlPlaneComponents(r *record) ([]supervisor.Component, error) {
	l := c.layout()
	endpoint := component.Endpoint{Bind: "127.0.0.1", Port: r.Port}
	kubernetes := r.Programs.Path(build.Kubernetes, "kubernetes")
	controlPlane, err := controlPlane(l, kubernetes, r.server(), component.NewControlPlane(l, endpoint, r.JobBatch))
	if err != nil {
		return nil, err
	}
	return []supervisor.Component{
		controlPlane,
		{
			Name:  "kwok",
			After: []string{controlPlane.Name},
			Command: []string{
				r.Programs.Path(build.Kwok, "kwok"),
				"--config=" + l.File("simulation.yaml"),
				"--kubeconfig=" + l.PKI("kwok.kubeconfig"),
				"--manage-all-nodes=true",
				"--cidr=" + component.PodSubnet,
				"--node-ip=" + component.NodeAddress,
				// Without leases, nodes are considered unreachable after 40 s.
				"--node-lease-duration-seconds=40",
			},
		},
	}, nil
}

// nodeComponents are those of the node mode, with paths as seen inside.
func (c *Cluster) nodeComponents(r *record, snapshotter string) ([]supervisor.Component, error) {
	l := component.Layout{Root: component.NodeRoot}
	programs := build.Programs{}
	for part, dir := range r.Programs {
		programs[part] = filepath.Join(component.NodePrograms, filepath.Base(dir))
	}
	kubernetes := programs.Path(build.Kubernetes, "kubernetes")
	endpoint := component.Endpoint{Bind: "0.0.0.0", Port: 6443, Advertise: component.NodeAddress}
	controlPlane, err := controlPlane(l, kubernetes, "https://"+component.NodeAPIServer, component.NewControlPlane(l, endpoint, r.JobBatch))
	if err != nil {
		return nil, err
	}
	containerd, err := containerd(l, programs, snapshotter)
	if err != nil {
		return nil, err
	}
	components := []supervisor.Component{containerd, controlPlane}
	var kubeletAfter []string
	for _, image := range defaultImages {
		task := supervisor.Component{
			Name:    "image-" + image.name,
			After:   []string{containerd.Name},
			Task:    true,
			Command: importImage(programs, component.ContainerdSocket, l.File(image.name+".tar")),
		}
		components, kubeletAfter = append(components, task), append(kubeletAfter, task.Name)
	}
	components = append(components, networkPolicies(l, programs))
	kubeletAfter = append(kubeletAfter, networkPoliciesName) // it must be ready before the first Pod starts
	agents, err := c.agents(l, programs, kubeletAfter)
	return append(components, agents...), err
}

// agents are the components that join a node to the cluster. The kubelet starts after the named components.
func (c *Cluster) agents(l component.Layout, programs build.Programs, kubeletAfter []string) ([]supervisor.Component, error) {
	kubernetes := programs.Path(build.Kubernetes, "kubernetes")
	for file, config := range map[string]any{
		"kubelet.json":    component.Kubelet(l, c.cgroup()),
		"kube-proxy.json": component.KubeProxy(l),
	} {
		if err := component.WriteJSON(l.File(file), config); err != nil {
			return nil, err
		}
	}
	return []supervisor.Component{
		{
			Name:  "kubelet",
			After: append([]string{controlPlaneName}, kubeletAfter...),
			Command: []string{
				kubernetes, "kubelet",
				"--config=" + l.File("kubelet.json"),
				"--kubeconfig=" + l.PKI("kubelet.kubeconfig"),
				"--node-ip=" + component.NodeAddress,
				"--hostname-override=" + component.NodeName,
			},
		},
		{
			Name:  "kube-proxy",
			After: []string{controlPlaneName},
			Command: []string{
				kubernetes, "kube-proxy",
				"--config=" + l.File("kube-proxy.json"),
				"--hostname-override=" + component.NodeName,
			},
		},
		{
			Name:    "coredns",
			After:   []string{controlPlaneName},
			Command: []string{programs.Path(build.CoreDNS, "coredns"), "-conf", l.File("Corefile")},
		},
	}, nil
}

func controlPlane(l component.Layout, kubernetes, server string, config component.ControlPlane) (supervisor.Component, error) {
	path := l.File("control-plane.json")
	if err := component.WriteJSON(path, config); err != nil {
		return supervisor.Component{}, err
	}
	if err := component.WriteAdmission(l); err != nil {
		return supervisor.Component{}, err
	}
	api, err := kubeapi.New(server, l.File("pki"))
	if err != nil {
		return supervisor.Component{}, err
	}
	return supervisor.Component{
		Name:    controlPlaneName,
		Command: []string{kubernetes, controlPlaneName, path},
		Ready:   api.WaitReady,
	}, nil
}

func containerd(l component.Layout, programs build.Programs, snapshotter string) (supervisor.Component, error) {
	config, err := component.Containerd{
		Root:        l.File("containerd"),
		Runc:        programs.Path(build.Runc, "runc"),
		CNIPlugins:  programs[build.CNI.Name],
		CNIConfig:   l.File("cni"),
		Snapshotter: snapshotter,
	}.Render()
	if err != nil {
		return supervisor.Component{}, fmt.Errorf("rendering containerd's configuration: %w", err)
	}
	path := l.File("containerd.toml")
	if err := writeFile(path, config); err != nil {
		return supervisor.Component{}, err
	}
	return supervisor.Component{
		Name:    containerdName,
		Command: []string{programs.Path(build.Containerd, "containerd"), "--config", path},
		Path:    []string{programs[build.Containerd.Name], programs[build.Runc.Name]}, // it looks for its shim
		Ready:   func(ctx context.Context) error { return waitSocket(ctx, component.ContainerdSocket) },
	}, nil
}

// networkPolicies is ready before kubelet starts the first Pod.
func networkPolicies(l component.Layout, programs build.Programs) supervisor.Component {
	return supervisor.Component{
		Name:  networkPoliciesName,
		After: []string{controlPlaneName, containerdName},
		Command: []string{
			programs.Path(build.NetworkPolicies, "network-policies"),
			"--kubeconfig=" + l.PKI("network-policies.kubeconfig"),
			"--node=" + component.NodeName,
			"--pods=" + component.PodSubnet,
			"--dns=" + component.NodeAddress,
			"--ready=" + component.NetworkPoliciesSocket,
		},
		Ready: func(ctx context.Context) error { return waitSocket(ctx, component.NetworkPoliciesSocket) },
	}
}

func importImage(programs build.Programs, socket, file string) []string {
	return []string{
		programs.Path(build.Containerd, "ctr"),
		"--address", socket, "--namespace", "k8s.io", "images", "import", file,
	}
}

func waitSocket(ctx context.Context, path string) error {
	return kubeapi.Wait(ctx, func() (bool, error) {
		connection, err := net.Dial("unix", path)
		if connection == nil {
			return false, nil
		}
		return true, errors.Join(err, connection.Close())
	})
}
