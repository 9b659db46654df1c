package component

import "os"

const (
	admissionFile      = "admission.yaml"
	webhookClientsFile = "webhook-clients.yaml"
)

// admission is the configuration of the API server's admission plugins.
func admission(l Layout) string {
	clients := l.File(webhookClientsFile)
	return `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: MutatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: "` + clients + `"}
- name: ValidatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: "` + clients + `"}
`
}

// webhookClients is the kubeconfig with which the API server calls webhooks. It presents a client certificate
// to those that ask for one.
func webhookClients(l Layout) string {
	return `apiVersion: v1
kind: Config
users:
- name: "*"
  user:
    client-certificate: "` + l.PKI("apiserver-webhook-client.crt") + `"
    client-key: "` + l.PKI("apiserver-webhook-client.key") + `"
`
}

// WriteAdmission writes the files that the API server's command line refers to.
func WriteAdmission(l Layout) error {
	if err := os.WriteFile(l.File(webhookClientsFile), []byte(webhookClients(l)), 0o600); err != nil {
		return err
	}
	return os.WriteFile(l.File(admissionFile), []byte(admission(l)), 0o600)
}
