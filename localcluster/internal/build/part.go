// Package build builds the programs of a cluster from their Go modules, once: the
// result is stored under a name that changes with each of its inputs.
package build

// Version is the Kubernetes version that modules/kubernetes pins.
const Version = "v1.36.3"

// Part is one module below modules/ and the programs built from it.
type Part struct {
	Name     string
	Version  string
	Packages []string
	Tags     string
	Linker   string // -ldflags
	CGO      bool
}

const strip = "-s -w"

// Without these versions kubectl and kubelet report v0.0.0-master, and kubectl
// rejects the server as too old.
const kubernetesVersion = " -X k8s.io/component-base/version.gitVersion=" + Version +
	" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"

// The parts of a cluster.
var (
	Kubernetes = Part{Name: "kubernetes", Version: Version, Packages: []string{"."}, Linker: strip + kubernetesVersion}

	Kwok = Part{Name: "kwok", Version: "v0.8.0", Packages: []string{"sigs.k8s.io/kwok/cmd/kwok"}, Linker: strip}

	Containerd = Part{
		Name: "containerd", Version: "v2.3.7",
		Packages: []string{
			"github.com/containerd/containerd/v2/cmd/containerd",
			"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
			"github.com/containerd/containerd/v2/cmd/ctr",
		},
		Tags:   "no_btrfs,no_devmapper,no_zfs",
		Linker: strip + " -X github.com/containerd/containerd/v2/version.Version=v2.3.7",
	}

	// runc enters namespaces in C, before Go's threads exist, and filters
	// system calls with libseccomp: it is the one part that needs gcc.
	Runc = Part{
		Name: "runc", Version: "v1.4.3", Packages: []string{"github.com/opencontainers/runc"},
		Tags:   "seccomp,netgo,osusergo",
		Linker: strip + " -linkmode external -extldflags -static -X main.version=1.4.3",
		CGO:    true,
	}

	CNI = Part{
		Name: "cni", Version: "v1.9.1",
		Packages: []string{
			"github.com/containernetworking/plugins/plugins/ipam/host-local",
			"github.com/containernetworking/plugins/plugins/main/loopback",
			"github.com/containernetworking/plugins/plugins/main/ptp",
			"github.com/containernetworking/plugins/plugins/meta/portmap",
		},
		Linker: strip,
	}

	CoreDNS = Part{Name: "coredns", Version: "v1.14.7", Packages: []string{"."}, Linker: strip}

	NetworkPolicies = Part{Name: "network-policies", Version: "v1.1.0", Packages: []string{"."}, Linker: strip}

	Pause = Part{Name: "pause", Version: "", Packages: []string{"."}, Linker: strip}
)

// ControlPlane and Node are the parts each mode needs.
var (
	ControlPlane = []Part{Kubernetes, Kwok}
	Node         = []Part{Kubernetes, Containerd, Runc, CNI, CoreDNS, NetworkPolicies, Pause}
)

// args are the arguments of go build, except for the output.
func (p Part) args() []string { return append([]string{"build"}, p.flags()...) }

// flags differ only where a part requires it, since each variant compiles all dependencies
// again. Debug information, which the linker would remove, is not generated.
func (p Part) flags() []string {
	flags := []string{"-trimpath", "-gcflags=all=-dwarf=false", "-buildvcs=false", "-mod=readonly", "-ldflags=" + p.Linker}
	if p.Tags != "" {
		flags = append(flags, "-tags="+p.Tags)
	}
	return flags
}

// env completes the environment of go build. GOFLAGS is emptied because a flag
// of the user's would not be part of the key.
func (p Part) env() []string {
	cgo := "CGO_ENABLED=0"
	if p.CGO {
		cgo = "CGO_ENABLED=1"
	}
	return []string{"GOTOOLCHAIN=local", "GOWORK=off", "GOFLAGS=", cgo}
}

func (p Part) String() string {
	if p.Version == "" {
		return p.Name
	}
	return p.Name + " " + p.Version
}
