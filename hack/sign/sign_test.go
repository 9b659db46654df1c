package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestOpensslVerifiesSignatures(t *testing.T) {
	for name, arguments := range map[string][]string{
		"a key of this command":        nil,
		"a key of openssl genpkey":     {"genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"},
		"a key of openssl ecparam":     {"ecparam", "-name", "prime256v1", "-genkey"},
		"a key without its parameters": {"ecparam", "-name", "prime256v1", "-genkey", "-noout"},
	} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			key, file := filepath.Join(directory, "key"), filepath.Join(directory, "checksums.txt")
			if arguments == nil {
				if err := generate("", key); err != nil {
					t.Fatal(err)
				}
			} else {
				openssl(t, append(arguments, "-out", key)...)
				openssl(t, "pkey", "-in", key, "-pubout", "-out", key+".pub")
			}
			write(t, file, "checksums")
			if err := sign(key, file); err != nil {
				t.Fatal(err)
			}
			decoded, err := base64.StdEncoding.DecodeString(string(read(t, file+".sig")))
			if err != nil {
				t.Fatal(err)
			}
			write(t, file+".der", string(decoded))
			verify := []string{"dgst", "-sha256", "-verify", key + ".pub", "-signature", file + ".der", file}
			openssl(t, verify...)
			write(t, file, "other checksums")
			if err := exec.CommandContext(t.Context(), "openssl", verify...).Run(); err == nil {
				t.Error("openssl verified another content")
			}
		})
	}
}

func TestBundleHasTheSignatureAndTheDigest(t *testing.T) {
	directory := t.TempDir()
	key, file := filepath.Join(directory, "key"), filepath.Join(directory, "checksums.txt")
	if err := generate("", key); err != nil {
		t.Fatal(err)
	}
	write(t, file, "checksums")
	if err := sign(key, file); err != nil {
		t.Fatal(err)
	}
	var bundle struct {
		MediaType        string
		MessageSignature struct {
			MessageDigest struct{ Algorithm, Digest string }
			Signature     string
		}
	}
	if err := json.Unmarshal(read(t, file+".sigstore.json"), &bundle); err != nil {
		t.Fatal(err)
	}
	if bundle.MessageSignature.Signature+"\n" != string(read(t, file+".sig")) {
		t.Errorf("the bundle has the signature %s", bundle.MessageSignature.Signature)
	}
	// printf checksums | sha256sum | xxd -r -p | base64
	if digest := bundle.MessageSignature.MessageDigest; digest.Algorithm != "SHA2_256" || digest.Digest != "076xbKJ6n8MytV9SbhyNptsLL1jVDJ0n1Z4V4jpONag=" {
		t.Errorf("the bundle has the digest %s %s", digest.Algorithm, digest.Digest)
	}
}

func TestSameKeyAndContentGiveTheSameSignature(t *testing.T) {
	private, _, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	key, err := parseKey(private)
	if err != nil {
		t.Fatal(err)
	}
	var texts [][]byte
	for range 2 {
		signature, err := newSignature(key, []byte("checksums"))
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, signature.text())
	}
	if !bytes.Equal(texts[0], texts[1]) {
		t.Errorf("%s and %s", texts[0], texts[1])
	}
}

func TestOtherKeysAreRefused(t *testing.T) {
	directory := t.TempDir()
	key := filepath.Join(directory, "key")
	for name, arguments := range map[string][]string{
		"RSA":               {"genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"},
		"another curve":     {"genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"},
		"with a passphrase": {"genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-aes256", "-pass", "pass:secret"},
	} {
		t.Run(name, func(t *testing.T) {
			openssl(t, append(arguments, "-out", key)...)
			if err := sign(key, key); !errors.Is(err, errKey) {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := parseKey([]byte("no key")); !errors.Is(err, errKey) {
		t.Errorf("no PEM: %v", err)
	}
}

func openssl(t *testing.T, arguments ...string) {
	t.Helper()
	if output, err := exec.CommandContext(t.Context(), "openssl", arguments...).CombinedOutput(); err != nil {
		t.Fatalf("openssl %v: %v\n%s", arguments, err, output)
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
