package component

import (
	"fmt"

	"github.com/yardmaster/yardmaster/localcluster/internal/pki"
)

const administrators = "system:masters"

// Certificates writes what the components identify themselves with. inside is
// the URL that they reach the API server at, outside the users'.
func Certificates(l Layout, inside, outside string) error {
	authority, err := pki.NewAuthority(l.File("pki"))
	if err != nil {
		return fmt.Errorf("creating the certificate authority: %w", err)
	}
	if err := authority.IssueKeyPair("service-account"); err != nil {
		return err
	}
	for name, leaf := range certificates() {
		if err := authority.Issue(name, leaf); err != nil {
			return err
		}
	}
	for name, leaf := range clients() {
		if err := authority.IssueKubeconfig(name, leaf, inside); err != nil {
			return err
		}
	}
	admin := pki.Leaf{CommonName: "admin", Organizations: []string{administrators}}
	return authority.IssueKubeconfig("admin", admin, outside)
}

func certificates() map[string]pki.Leaf {
	node := "system:node:" + NodeName
	return map[string]pki.Leaf{
		"apiserver": {CommonName: "kube-apiserver", Hosts: []string{
			"localhost", "127.0.0.1", NodeAddress, ServiceAddress,
			"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		}},
		"kubelet-server":           {CommonName: node, Organizations: []string{"system:nodes"}, Hosts: []string{NodeName, NodeAddress, "127.0.0.1"}},
		"apiserver-kubelet-client": {CommonName: "kube-apiserver-kubelet-client", Organizations: []string{administrators}},
		"apiserver-webhook-client": {CommonName: "kube-apiserver-webhook-client"},
		"front-proxy-client":       {CommonName: "front-proxy-client"},
	}
}

// clients are the components that talk to the API server. Those for which
// Kubernetes has no role of their own are administrators.
func clients() map[string]pki.Leaf {
	return map[string]pki.Leaf{
		"controller-manager": {CommonName: "system:kube-controller-manager"},
		"scheduler":          {CommonName: "system:kube-scheduler"},
		"kubelet":            {CommonName: "system:node:" + NodeName, Organizations: []string{"system:nodes"}},
		"kube-proxy":         {CommonName: "system:kube-proxy"},
		"control-plane":      {CommonName: "localcluster:control-plane", Organizations: []string{administrators}},
		"network-policies":   {CommonName: "localcluster:network-policies", Organizations: []string{administrators}},
		"coredns":            {CommonName: "localcluster:coredns", Organizations: []string{administrators}},
		"kwok":               {CommonName: "localcluster:kwok", Organizations: []string{administrators}},
	}
}
