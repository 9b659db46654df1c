// Command sign signs a file of a release with a key, offline. openssl and cosign verify the signature.
package main

import (
	"fmt"
	"os"
)

const usage = `usage:
  sign generate KEY   writes a new private key to KEY and the public key to KEY.pub
  sign KEY FILE       writes FILE.sig, for openssl, and FILE.sigstore.json, for cosign`

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	action := sign
	arguments := os.Args[1:]
	if arguments[0] == "generate" {
		action = generate
	}
	if err := action(arguments[0], arguments[1]); err != nil {
		fmt.Fprintln(os.Stderr, "sign:", err)
		os.Exit(1)
	}
}

// public is the mode of files that everyone may read.
const public = 0o644

func generate(_, file string) error {
	private, publicKey, err := newKey()
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, private, 0o600); err != nil {
		return err
	}
	return os.WriteFile(file+".pub", publicKey, public)
}

func sign(keyFile, file string) error {
	encoded, err := os.ReadFile(keyFile)
	if err != nil {
		return err
	}
	key, err := parseKey(encoded)
	if err != nil {
		return fmt.Errorf("reading %s: %w", keyFile, err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	signature, err := newSignature(key, content)
	if err != nil {
		return err
	}
	bundle, err := signature.bundle()
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".sig", signature.text(), public); err != nil {
		return err
	}
	return os.WriteFile(file+".sigstore.json", bundle, public)
}
