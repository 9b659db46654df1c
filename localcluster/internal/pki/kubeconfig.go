package pki

import (
	"encoding/base64"
	"fmt"
)

const kubeconfigFormat = `apiVersion: v1
kind: Config
clusters:
- name: localcluster
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: localcluster
  user:
    client-certificate-data: %s
    client-key-data: %s
contexts:
- name: localcluster
  context:
    cluster: localcluster
    user: localcluster
current-context: localcluster
`

func kubeconfig(server string, authority, certificate, key []byte) []byte {
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, kubeconfigFormat, server, b64(authority), b64(certificate), b64(key))
}
