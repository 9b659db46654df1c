package component

import (
	_ "embed"
	"strings"
	"text/template"
)

// ContainerdSocket is where containerd listens inside a node.
const ContainerdSocket = "/run/containerd/containerd.sock"

// NetworkPoliciesSocket is where network-policies listens when policies hold.
const NetworkPoliciesSocket = "/run/network-policies.sock"

//go:embed containerd.toml
var containerdFormat string

var containerdTemplate = template.Must(template.New("containerd.toml").Parse(containerdFormat))

// Containerd is what its configuration depends on.
type Containerd struct {
	Root        string
	Runc        string
	CNIPlugins  string
	CNIConfig   string
	Snapshotter string
}

// Render returns the configuration file.
func (c Containerd) Render() (string, error) {
	var out strings.Builder
	err := containerdTemplate.Execute(&out, struct {
		Containerd
		Socket, PauseImage string
	}{c, ContainerdSocket, PauseImage})
	return out.String(), err
}

type object = map[string]any

// Network is the CNI configuration of Pods. With ptp, all traffic of Pods is
// routed, so that kube-proxy sees it without help from the kernel's br_netfilter.
func Network() any {
	return object{
		"cniVersion": "1.0.0",
		"name":       "pods",
		"plugins": []object{
			{
				"type":   "ptp",
				"ipMasq": false,
				"ipam": object{
					"type":   "host-local",
					"ranges": [][]object{{{"subnet": PodSubnet}}},
					"routes": []object{{"dst": "0.0.0.0/0"}},
				},
			},
			{"type": "portmap", "backend": "nftables", "snat": true, "capabilities": object{"portMappings": true}},
		},
	}
}

// Kubelet is the kubelet's configuration.
func Kubelet(l Layout, cgroup string) any {
	return object{
		"apiVersion":               "kubelet.config.k8s.io/v1beta1",
		"kind":                     "KubeletConfiguration",
		"failCgroupV1":             false,
		"cgroupDriver":             "cgroupfs",
		"cgroupRoot":               "/" + cgroup,
		"containerRuntimeEndpoint": "unix://" + ContainerdSocket,
		"volumePluginDir":          l.File("flexvolume"),
		"authentication": object{
			"anonymous": object{"enabled": false},
			"webhook":   object{"enabled": true},
			"x509":      object{"clientCAFile": l.PKI("ca.crt")},
		},
		"authorization":     object{"mode": "Webhook"},
		"tlsCertFile":       l.PKI("kubelet-server.crt"),
		"tlsPrivateKeyFile": l.PKI("kubelet-server.key"),
		"clusterDNS":        []string{NodeAddress},
		"clusterDomain":     "cluster.local",
		"failSwapOn":        false,
		"maxPods":           200,
		// kube-proxy alone manages the machine's firewall.
		"makeIPTablesUtilChains": false,
		// The node shares the machine's disk, so evict Pods only when the disk is
		// nearly full.
		"evictionHard": object{
			"memory.available":  "50Mi",
			"nodefs.available":  "1%",
			"imagefs.available": "1%",
			"nodefs.inodesFree": "1%",
		},
		// A removed image could not be pulled again.
		"imageGCHighThresholdPercent": 100,
		"imageMinimumGCAge":           "87600h",
		"kubeAPIQPS":                  200,
		"kubeAPIBurst":                400,
		"registryPullQPS":             0,
		"eventRecordQPS":              0,
		"nodeStatusUpdateFrequency":   "5s",
	}
}

// KubeProxy is kube-proxy's configuration. Zeros keep it from setting the whole
// machine's connection tracking.
func KubeProxy(l Layout) any {
	return object{
		"apiVersion":       "kubeproxy.config.k8s.io/v1alpha1",
		"kind":             "KubeProxyConfiguration",
		"mode":             "nftables",
		"clientConnection": object{"kubeconfig": l.PKI("kube-proxy.kubeconfig")},
		"clusterCIDR":      PodSubnet,
		"conntrack": object{
			"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
		},
	}
}

// Corefile is CoreDNS's configuration: the cluster's names, and no others.
func Corefile(l Layout) string {
	return `. {
    bind ` + NodeAddress + `
    errors
    kubernetes cluster.local in-addr.arpa {
        kubeconfig ` + l.PKI("coredns.kubeconfig") + `
    }
    cache 5
}
`
}
