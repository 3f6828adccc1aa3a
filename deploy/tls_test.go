package deploy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/deploy/stage"
)

// authority issues certificates for one test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.issue("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *authority) path(file string) string { return filepath.Join(a.dir, file) }

// issue signs a certificate and writes NAME.pem and NAME.key.
func (a *authority) issue(name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(a.t, err)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.Subject = pkix.Name{CommonName: name}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := template, key
	if a.cert != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	check(a.t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	check(a.t, err)
	check(a.t, os.WriteFile(a.path(name+".pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	check(a.t, os.WriteFile(a.path(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	cert, err := x509.ParseCertificate(der)
	check(a.t, err)
	return cert, key
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// engine answers over TLS to clients of the authority alone, and tells the name
// by which it was asked.
func (a *authority) engine() *httptest.Server {
	a.t.Helper()
	a.issue("engine", &x509.Certificate{DNSNames: []string{"engine.example"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	a.issue("client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	pair, err := tls.LoadX509KeyPair(a.path("engine.pem"), a.path("engine.key"))
	check(a.t, err)
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "asked as %s by %s", r.TLS.ServerName, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	server.StartTLS()
	a.t.Cleanup(server.Close)
	return server
}

// Envoy and the control plane's probes speak TLS to a pool that asks for it, with
// a client certificate, and only to an engine whose certificate bears the name.
func TestTLSToTheEngines(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"engine.example": 200, "another.example": 503} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAuthority(t)
			_, port, err := net.SplitHostPort(a.engine().Listener.Addr().String())
			check(t, err)
			s := start(t, stage.Options{FleetFile: "testdata/four.yaml", Edit: func(text string) string {
				list := text[strings.Index(text, "engines: ["):]
				list = list[:strings.Index(list, "\n")]
				behind := fmt.Sprintf("engines: [\"127.0.0.1:%s\"]\n    tls: {sni: %s, ca: %s, cert: %s, key: %s}", port, name, a.path("ca.pem"), a.path("client.pem"), a.path("client.key"))
				return strings.Replace(text, list, behind, 1)
			}})
			r := stage.Do(t.Context(), stage.NewClient(), chatCall(s.URL("main"), "hello"))
			if r.Status != status {
				t.Errorf("%v, want status %d", &r, status)
			}
			if want := "asked as engine.example by client"; status == 200 && string(r.Body) != want {
				t.Errorf("the engine was %q, want %q", r.Body, want)
			}
		})
	}
}
