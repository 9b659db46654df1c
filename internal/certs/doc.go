// Package certs gives the webhook server its certificate.
//
// With self-managed certificates, a Secret in the operator's namespace holds a CA and a
// server certificate. Each replica runs the rotator, which renews both in time and
// puts the CA into the webhook configuration, and a Mirror, which copies the server
// certificate from the Secret into a local directory. Mounting the Secret would do the
// same, but a kubelet takes up to a minute to show a changed Secret in a volume, and
// until then the API server refuses every SequentialJob.
//
// The package never makes a certificate itself, and never creates the Secret: that is
// part of the installation, so that the operator needs no right to create Secrets.
package certs
