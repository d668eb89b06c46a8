// Sign one delivery with each SDK of package.json, and print them as JSON: the file signed.json.
// `make chaos` runs this again and compares. To record anew: npm install && node sign.mjs > signed.json
import { readFileSync } from "node:fs";
import { sign as signForGitHub } from "@octokit/webhooks-methods";
import { getHmac } from "@shopify/shopify-api/test-helpers";
import { Webhook as StandardWebhook } from "standardwebhooks";
import Stripe from "stripe";
import { Webhook as SvixWebhook } from "svix";

const at = 1790000000;
const body = '{"id":"evt_9","type":"invoice.paid","action":"opened","name":"Olá 😀 \\u00e4"}';
const moment = new Date(at * 1000);
const whsec = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const otherWhsec = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const { dependencies } = JSON.parse(readFileSync(new URL("package.json", import.meta.url)));

function sample(preset, sdk, secret, headers, signature, rest) {
  return { preset, made_by: `${sdk} ${dependencies[sdk]} (npm)`, secret, at, body, headers, signature, ...rest };
}

function standard(preset, sdk, prefix, signature) {
  const headers = { [`${prefix}-id`]: "msg_9", [`${prefix}-timestamp`]: `${at}`, [`${prefix}-signature`]: signature };
  return sample(preset, sdk, whsec, headers, `${prefix}-signature`, {
    time: `${prefix}-timestamp`,
    timed: true,
    covers: ["body", `${prefix}-id`],
    key: "msg_9",
    type: "invoice.paid",
    other_secret: otherWhsec,
  });
}

const stripeHeader = Stripe.webhooks.generateTestHeaderString({ payload: body, secret: "whsec_test", timestamp: at });
const githubHeaders = {
  "X-Hub-Signature-256": await signForGitHub("Secret", body),
  "X-GitHub-Event": "issues",
  "X-GitHub-Delivery": "d-9",
};
const shopifyHeaders = {
  "X-Shopify-Hmac-Sha256": getHmac(body, "hush"),
  "X-Shopify-Topic": "orders/paid",
  "X-Shopify-Webhook-Id": "w-9",
};

const signed = [
  standard("standard-webhooks", "standardwebhooks", "webhook", new StandardWebhook(whsec).sign("msg_9", moment, body)),
  standard("svix", "svix", "svix", new SvixWebhook(whsec).sign("msg_9", moment, body)),
  standard("svix", "svix", "webhook", new SvixWebhook(whsec).sign("msg_9", moment, body)),
  sample("stripe", "stripe", "whsec_test", { "Stripe-Signature": stripeHeader }, "stripe-signature", {
    timed: true,
    key: "evt_9",
    type: "invoice.paid",
  }),
  sample("github", "@octokit/webhooks-methods", "Secret", githubHeaders, "x-hub-signature-256", {
    key: "d-9",
    type: "issues.opened",
  }),
  sample("shopify", "@shopify/shopify-api", "hush", shopifyHeaders, "x-shopify-hmac-sha256", {
    key: "w-9",
    type: "orders/paid",
  }),
];
console.log(JSON.stringify(signed, null, 2));
