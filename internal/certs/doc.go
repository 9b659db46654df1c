// Package certs provides the certificate of the webhook server.
//
// With self-managed certificates, a Secret in the operator's namespace has a CA and a server
// certificate. Each replica runs the rotator, which renews both in time and writes the CA into the
// webhook configurations, and a CertificateCopier, which copies the server certificate from the Secret
// into a local directory. Mounting the Secret is not sufficient: a kubelet takes up to a minute to
// update a volume, and until then the API server refuses every SequentialJob.
//
// The package neither issues certificates itself nor creates the Secret, which is part of the
// installation, so that the operator needs no permission to create Secrets.
package certs
